"""Who set ``isolation.level``: the worker's owner, or a roll, temporarily?

The journal answers. The plan of each rollout has the digests of a worker's file before and after, and the properties
that it set. From the current file the digests lead back, roll by roll, to the roll that set the property. If the chain
breaks, the file was edited since, and the property counts as the owner's; so it does if the journal was removed. A
property that stays does no harm (``properties.py``).
"""

from __future__ import annotations

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import RolloutRecord
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.plan.plan import Plan
from airflow_eos_provider.rollout.plan.planned_edit import PlannedEdit
from airflow_eos_provider.rollout.plan.worker_edits import ISOLATION_PROPERTY, READ_COMMITTED, Former


def temporary_isolation(content: JournalContent, observation: Observation) -> dict[str, Former]:
    """The workers whose file reads committed because a roll made it so, with what stood there before.

    :param content: the journal of this group.
    """
    newest_first = sorted(content.rollouts.values(), key=lambda record: record.started_at, reverse=True)
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
