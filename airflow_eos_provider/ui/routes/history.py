"""Rolls and other changes of a group, newest first: who, when, why, evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import ChangeRecord
from airflow_eos_provider.rollout.roll_history import ForeignRollout, Rollout, whole_history
from airflow_eos_provider.ui.answers import add_rows
from airflow_eos_provider.ui.documents import Table, filter_by
from airflow_eos_provider.ui.looks import Looks
from airflow_eos_provider.ui.routes.rolls import KEPT_SECONDS, look_at_journal


def routes(looks: Looks) -> APIRouter:
    """The route of the history."""
    router, filters = APIRouter(), filter_by("kind")
    add_rows(router, looks, "history", "journal", look_at_journal, history_of, filters, kept_seconds=KEPT_SECONDS)
    return router


def history_of(content: JournalContent) -> Table:
    """The journal's rolls and changes."""
    return Table.of(sorted(_items(content), key=lambda item: item["at"] or 0.0, reverse=True))


def _items(content: JournalContent) -> Iterator[dict[str, Any]]:
    yield from map(_of_roll, whole_history(content))
    yield from map(_of_change, content.changes.values())


def _of_roll(roll: Rollout | ForeignRollout) -> dict[str, Any]:
    if isinstance(roll, ForeignRollout):
        return {"kind": "roll", "id": roll.rollout_id, "about": "", "at": roll.started_at, **roll.to_dict()}
    record = roll.record
    seen = [f"{step.worker_id}: {line}" for step in roll.steps.values() for line in step.evidence]
    return {
        "kind": "roll",
        "id": roll.rollout_id,
        "about": f"{roll.plan.current} → {roll.plan.target}",
        "state": roll.state,
        "at": record.started_at,
        "ended_at": roll.ended_at,
        "actor": record.actor,
        "reason": record.reason,
        "note": record.note,
        "plan": roll.plan.hash,
        "done": [step.worker_id for step in roll.steps.values() if step.status == "passed"],
        "under_way": roll.lease.step if roll.lease else "",
        "seen": seen,
    }


def _of_change(change: ChangeRecord) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "id": change.change_id,
        "about": change.about,
        "state": str(change.state),
        "at": change.started_at,
        "ended_at": None,
        "actor": change.actor,
        "reason": change.reason,
        "note": change.note,
        "plan": change.plan.get("hash"),
        "done": list(change.done),
        "under_way": change.under_way,
        "seen": [],
    }
