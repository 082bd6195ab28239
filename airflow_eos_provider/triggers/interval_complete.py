"""The trigger that waits until an interval is complete; like every trigger it only reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.triggers.polling import PollingTrigger


class IntervalCompleteTrigger(PollingTrigger):
    """Asks the pipeline's ledger. Its event: ``{"status": "complete", …summary}``."""

    run_name: str
    pipeline: Mapping[str, Any]

    def ask(self) -> tuple[dict[str, Any] | None, str]:
        from airflow_eos_provider.hooks.pipeline import find_pipeline
        from airflow_eos_provider.interval.interval import Run
        from airflow_eos_provider.interval.verify import completion

        done = completion(find_pipeline(**self.pipeline), Run.parse(self.run_name))
        return (None if done is None else {"status": "complete", **done.to_dict()}), ""
