"""What OpenLineage receives of one run: its datasets and its facet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.openlineage.facet import Dataset
from airflow.providers.openlineage.extractors import OperatorLineage

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.lineage.facets import INTERVAL_FACET, ROLL_FACET, IntervalFacet, RollFacet

if TYPE_CHECKING:
    from airflow_eos_provider.interval.pipeline import Pipeline


def of_interval(
    pipeline: Pipeline, run: Run, result: Mapping[str, Any], inputs: Mapping[str, int]
) -> OperatorLineage[Any, Any]:
    """An interval run: the folders of the files that its plan pinned, and the topic."""
    from airflow_eos_provider.interval.topics.ledger import complete_key

    whole = result.get("part_of")
    facet = IntervalFacet(
        interval_run=run.name,
        group_id=pipeline.group_id,
        records=result["records"],
        digest=result["digest"],
        slices=result["slices"],
        already=result["already"],
        ledger_topic=pipeline.ledger_topic,
        ledger_key=complete_key(Run.parse(whole) if whole else run).decode(),
    )
    outputs = []
    if pipeline.topic:
        server = pipeline.kafka.bootstrap_servers.split(",")[0].strip()
        outputs.append(Dataset(namespace=f"kafka://{server}", name=pipeline.topic))
    return OperatorLineage(
        inputs=[_folder(folder) for folder in inputs],
        outputs=outputs,
        run_facets={INTERVAL_FACET: facet},
    )


def of_roll(report: Mapping[str, Any], group_id: str) -> OperatorLineage[Any, Any]:
    """A roll, which reads and writes no data."""
    facet = RollFacet(
        group_id=group_id,
        rollout_id=report["rollout_id"],
        plan_hash=report["plan"],
        from_mode=report["from"],
        to_mode=report["to"],
        workers=len(report["workers"]),
        task_downtime_seconds=round(sum(worker["task_downtime_seconds"] for worker in report["workers"]), 1),
    )
    return OperatorLineage(run_facets={ROLL_FACET: facet})


def _folder(folder: str) -> Dataset:
    """A folder by OpenLineage's naming: the store is the namespace, the path the name."""
    parts = urlsplit(folder)
    if parts.scheme in ("", "file"):
        return Dataset(namespace="file", name=parts.path or "/")
    host = parts.netloc.rpartition("@")[2]
    return Dataset(namespace=f"{parts.scheme}://{host}", name=parts.path.strip("/") or "/")
