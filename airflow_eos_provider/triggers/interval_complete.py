"""The trigger that waits until an interval is complete; like every trigger it only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_eos_provider.errors import ConfigurationError, EosError


class IntervalCompleteTrigger(BaseTrigger):
    """Asks the pipeline's ledger every so often. It can be run again from its beginning, and twice at once.

    Its events: ``{"status": "complete", …summary}``, ``{"status": "timeout"}`` or ``{"status": "error", "reason": …}``.

    :param run: the run's name.
    :param pipeline: arguments of :func:`~airflow_eos_provider.hooks.pipeline.find_pipeline`; names only, no secrets.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; it does not move when the task is deferred again.
    """

    def __init__(self, *, run: str, pipeline: Mapping[str, Any], poke_interval: float, deadline: float) -> None:
        super().__init__()
        self.run_name = run
        self.pipeline = dict(pipeline)
        self.poke_interval = poke_interval
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "run": self.run_name,
            "pipeline": self.pipeline,
            "poke_interval": self.poke_interval,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Not the shared thread of sync_to_async: one slow broker would hold up every other trigger. Not a bare thread:
        # a connection could not be asked for from there.
        look = sync_to_async(_look, thread_sensitive=False)
        while True:
            try:
                found = await look(self.run_name, self.pipeline)
            except ConfigurationError as error:
                yield TriggerEvent({"status": "error", "reason": str(error)})
                return
            except EosError as error:  # a broker that is away comes back, or the deadline comes
                self.log.warning("%s cannot be checked now: %s", self.run_name, error.found)
                found = None
            if found is not None:
                yield TriggerEvent({"status": "complete", **found})
                return
            left = self.deadline - time.time()
            if left <= 0:
                yield TriggerEvent({"status": "timeout"})
                return
            await asyncio.sleep(min(self.poke_interval, left))


def _look(run_name: str, pipeline: Mapping[str, Any]) -> dict[str, Any] | None:
    from airflow_eos_provider.hooks.pipeline import find_pipeline
    from airflow_eos_provider.interval.interval import Run
    from airflow_eos_provider.interval.verify import completion

    done = completion(find_pipeline(**pipeline), Run.parse(run_name))
    return None if done is None else done.to_dict()
