"""Rolls, as a group's journal has them: the list, and one with its plan."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.journal.records import JournalContent
from airflow_eos_provider.journal.topic import read_journal
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.rollout.history import ForeignRollout, Rollout, whole_history
from airflow_eos_provider.ui.answers import NO_ITEMS, answer, see_cluster
from airflow_eos_provider.ui.documents import PagingDep, Table, redacted
from airflow_eos_provider.ui.looks import Looks, Seen

#: A roll that runs changes by the second.
KEPT_SECONDS = 2.0


def look_at_journal(cluster: ConnectCluster) -> JournalContent:
    """Read the journal as ``eos rollout list`` does."""
    with Session(cluster.kafka) as session:
        return read_journal(session, cluster.group_id)


async def see_journal(looks: Looks, connection_id: str, **limits: float) -> Seen[JournalContent]:
    """The journal of a cluster's group."""
    limits.setdefault("kept_seconds", KEPT_SECONDS)
    return await see_cluster(looks, connection_id, "journal", look_at_journal, **limits)


def newest_roll(content: JournalContent) -> dict[str, Any] | None:
    """The newest roll in short; None if the group was never rolled."""
    rolls = whole_history(content)
    return redacted(in_short(rolls[0])) if rolls else None


def in_short(roll: Rollout | ForeignRollout) -> dict[str, Any]:
    """A roll without its workers and events, as JSON."""
    if isinstance(roll, ForeignRollout):
        return {**roll.to_dict(), "started_at": roll.started_at}
    document = roll.to_dict()
    short = {name: value for name, value in document.items() if name not in ("workers", "events", "request")}
    return {**short, "workers_done": roll.workers_done, "workers_to_roll": roll.workers_to_roll}


def routes(looks: Looks) -> APIRouter:
    """The routes of rolls."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/rolls")
    async def rolls(connection_id: str, paging: PagingDep) -> Response:
        seen = await see_journal(looks, connection_id)
        return await answer(
            seen, lambda content: Table.of(map(in_short, whole_history(content))).page(paging), NO_ITEMS
        )

    return router
