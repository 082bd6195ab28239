"""Workers that a roll has left down: it had announced their restart, and they do not run.

Only the journal distinguishes them from workers that their owner has stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.plan.plan import ChangeKind


def left_down(content: JournalContent, observation: Observation) -> dict[str, str]:
    """The rollout that left it down, by worker."""
    newest_first = sorted(content.rollouts.values(), key=lambda record: record.started_at, reverse=True)
    found = {w.worker_id: _left_by(w.worker_id, newest_first, content) for w in observation.stopped}
    return {worker_id: rollout_id for worker_id, rollout_id in found.items() if rollout_id}


def _left_by(worker_id: str, newest_first: Iterable[RolloutRecord], content: JournalContent) -> str:
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
