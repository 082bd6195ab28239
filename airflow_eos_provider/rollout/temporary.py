"""Whose ``isolation.level`` is it: the worker owner's, or one that a roll has set for the way?

The journal answers. Each rollout has in its plan the digest of a worker's file before and after, and what it set there.
From the file as it is now the digests are followed back, roll by roll, to the one that set the property. Where the
chain breaks, somebody has edited the file since; then it is his, for he has seen it and left it. So it is, too, when
the journal was removed. A property that stays does no harm (``properties.py``).
"""

from __future__ import annotations

from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.plan import SCHEMA
from airflow_eos_provider.rollout.properties import ISOLATION_PROPERTY, READ_COMMITTED, Former
from airflow_eos_provider.rollout.records import JournalContent, RolloutRecord, StepStatus

#: Of a worker with such a step the file is as its plan wanted it.
_CHANGED = (StepStatus.RESTARTED, StepStatus.PASSED)


def temporary_isolation(content: JournalContent, observation: Observation) -> dict[str, Former]:
    """The workers whose file reads committed because a roll made it so, with what stood there before.

    :param content: the journal of this group.
    """
    newest_first = sorted(content.rollouts.values(), key=lambda record: record.started_at, reverse=True)
    found = {}
    for worker in observation.workers:
        digest = worker.facts.config_sha256
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
        step = content.steps.get(record.rollout_id, {}).get(worker_id)
        change = next((c for c in record.plan["workers"] if c["worker_id"] == worker_id), None)
        if step is None or step.status not in _CHANGED or change is None:
            continue  # that roll has not touched the file, or has put it back
        if record.plan["schema"] != SCHEMA:
            return None
        if change["config_after"] != digest:
            return None
        if change["sets_isolation"]:
            return Former(change["isolation"])
        digest = change["config_before"]
    return None
