"""What earlier rolls have left, by the journal: workers that are down, and ``isolation.level`` in their files.

Only the journal distinguishes a worker that a roll has left down (it had announced its restart, and it does not run)
from one that its owner has stopped.

Who set ``isolation.level``: the worker's owner, or a roll, temporarily? The plan of each rollout has the digests of a
worker's file before and after, and the properties that it set. From the current file the digests lead back, roll by
roll, to the roll that set the property. If the chain breaks, the file was edited since, and the property counts as the
owner's; so it does if the journal was removed. A property that stays does no harm (``worker_edits.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, PlannedEdit
from airflow_eos_provider.rollout.plan.worker_edits import ISOLATION_PROPERTY, READ_COMMITTED, Former


def left_down(content: JournalContent, observation: Observation) -> dict[str, str]:
    """The rollout that left it down, by worker."""
    newest_first = _newest_first(content)
    found = {w.worker_id: _left_by(w.worker_id, newest_first, content) for w in observation.stopped}
    return {worker_id: rollout_id for worker_id, rollout_id in found.items() if rollout_id}


def _left_by(worker_id: str, newest_first: list[RolloutRecord], content: JournalContent) -> str:
    """The newest rollout that restarted the worker decides, unless the worker ran when a later plan was made."""
    for record in newest_first:
        step = content.steps.get(record.rollout_id, {}).get(worker_id)
        workers: Mapping[str, Mapping[str, str]] = {w["worker_id"]: w for w in record.plan.get("workers", ())}
        planned = workers.get(worker_id, {})
        if step is not None and planned.get("kind") != ChangeKind.FILE_ONLY.name:
            is_down = step.status.is_half_done and record.state is not RolloutState.DONE
            return record.rollout_id if is_down else ""
        if planned.get("mode", "stopped") != "stopped":
            return ""
    return ""


def temporary_isolation(content: JournalContent, observation: Observation) -> dict[str, Former]:
    """The workers whose file reads committed because a roll made it so, with what stood there before."""
    newest_first = _newest_first(content)
    found = {}
    for worker in observation.workers:
        digest = worker.facts.digest
        if digest is None or worker.facts.properties.get(ISOLATION_PROPERTY) != READ_COMMITTED:
            continue
        former = _set_by_a_roll(worker.worker_id, digest, newest_first, content)
        if former is not None:
            found[worker.worker_id] = former
    return found


def _set_by_a_roll(
    worker_id: str, digest: str, newest_first: list[RolloutRecord], content: JournalContent
) -> Former | None:
    for record in newest_first:
        steps = content.steps.get(record.rollout_id, {})
        if record.plan.get("schema") != Plan.SCHEMA:
            if worker_id in steps:
                return None
            continue
        change = next((c for c in record.plan["workers"] if c["worker_id"] == worker_id), None)
        if change is None:
            continue
        serves = tuple(c["worker_id"] for c in record.plan["workers"] if c["config"] == change["config"])
        edit = PlannedEdit(change["config"], change["config_before"], change["config_after"], serves)
        if not edit.is_as_planned(steps):
            continue  # that roll has not touched the file, or has put it back
        if change["config_after"] != digest:
            return None
        if change["sets_isolation"]:
            return Former(change["isolation"])
        digest = change["config_before"]
    return None


def _newest_first(content: JournalContent) -> list[RolloutRecord]:
    return sorted(content.rollouts.values(), key=lambda record: record.started_at, reverse=True)
