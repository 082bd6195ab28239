"""Transactional ids of a group with their open transactions, and hanging transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.transactions.audit import DEFAULT_LIMITS, idle_ids, live_ids
from airflow_eos_provider.transactions.known_ids import Filter, KnownId, id_expiration_seconds
from airflow_eos_provider.transactions.readable_ends import EndsOrWhy, ends_document, ends_of
from airflow_eos_provider.transactions.readers import hanging_document, readers_of
from airflow_eos_provider.transactions.scope import Scope
from airflow_eos_provider.ui.answers import NO_ITEMS, add_document, answer, see_cluster
from airflow_eos_provider.ui.documents import PagingDep, Table, keep_where, redacted
from airflow_eos_provider.ui.looks import Looks


def look_at_transactions(cluster: ConnectCluster, *, everyone: bool = False) -> Table:
    """The ids of ``eos transactions list``, and how far consumers can read partitions with open transactions."""
    notes: list[str] = []
    with ConnectSession(cluster) as session:
        scope = Scope(session, None, report=notes.append)
        state = scope.state()
        found = scope.ids(Filter(everyone=everyone), state)
        expiration = id_expiration_seconds(session.kafka)
        held = [place for one in found if one.description.state.is_open for place in one.description.partitions]
        ends = ends_of(session.kafka, held) if held else {}
    now = time.time()
    idle = list(idle_ids(found, live_ids(cluster.group_id, state) if state else {}, expiration, now, DEFAULT_LIMITS))
    expiring = {each.subject for each in idle}
    head = {
        "expiration_seconds": expiration,
        "findings": [each.to_dict() for each in idle],
        "notes": notes,
    }
    return Table.of((_row(one, ends, now, expiring) for one in found), head)


def look_for_hanging(cluster: ConnectCluster) -> dict[str, Any]:
    """Look for hanging transactions as ``eos transactions list --hanging`` does."""
    with ConnectSession(cluster) as session:
        look = Scope(session, None).hanging()
        ends = ends_of(session.kafka, [one.held.place for one in look.hanging])
        found: dict[str, Any] = redacted(hanging_document(look, ends, readers_of(session.kafka, ends, {})))
    return found


def routes(looks: Looks) -> APIRouter:
    """The routes of transactions."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/transactions")
    async def transactions(
        connection_id: str, paging: PagingDep, open: bool = False, all: bool = False, connector: str = ""
    ) -> Response:
        kind, look = ("transactions of all" if all else "transactions"), partial(look_at_transactions, everyone=all)
        seen = await see_cluster(looks, connection_id, kind, look)
        keep = keep_where(open="true" if open else "", connector=connector)
        return await answer(seen, lambda found: found.page(paging, keep), NO_ITEMS)

    add_document(router, looks, "hanging", look_for_hanging)
    return router


def _row(one: KnownId, ends: Mapping[Place, EndsOrWhy], now: float, expiring: set[str]) -> dict[str, Any]:
    return {
        **one.to_dict(now),
        "open": one.description.state.is_open,
        "idle_seconds": one.idle_seconds(now),
        "near_expiry": one.id in expiring,
        "partitions": _partitions(one.description.partitions, ends),
    }


def _partitions(places: Sequence[Place], ends: Mapping[Place, EndsOrWhy]) -> list[dict[str, Any]]:
    found = []
    for topic, partition in places:
        known = ends.get((topic, partition))
        found.append({"topic": topic, "partition": partition, **({} if known is None else ends_document(known))})
    return found
