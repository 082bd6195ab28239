"""Fencing rounds that are due, and what is held open: what ``eos fence --json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.offsets.fencing.documents import fence_document
from airflow_eos_provider.offsets.fencing.round import Fencer
from airflow_eos_provider.ui.answers import NO_ITEMS, answer, see_cluster
from airflow_eos_provider.ui.documents import ConnectorName, PagingDep, Table, keep_where, redacted
from airflow_eos_provider.ui.looks import Looks

#: A look waits a second to see which transactions stay open.
KEPT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class FencingLook:
    """One look at the fencing of source connectors.

    :param connectors: a row for each, with its transactional ids, their producers and epochs.
    :param head: what is said of all, the hash of the plan included.
    """

    connectors: Table
    head: Mapping[str, Any]


def look_at_fencing(cluster: ConnectCluster) -> FencingLook:
    """Look at fencing rounds as ``eos fence`` does, and at one that was begun and not finished."""
    with ConnectSession(cluster) as session:
        fencer = Fencer(session, read_worker_files(cluster).common(CONFIGS))
        unfinished = fencer.unfinished()
        document = fence_document(*fencer.look(), unfinished)
    connectors = document.pop("connectors")
    return FencingLook(Table.of(connectors), redacted(document))


def routes(looks: Looks) -> APIRouter:
    """The route of fencing rounds."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/fencing")
    async def fencing(
        connection_id: str, paging: PagingDep, pending: bool = False, connector: ConnectorName = ""
    ) -> Response:
        seen = await see_cluster(looks, connection_id, "fencing", look_at_fencing, kept_seconds=KEPT_SECONDS)
        keep = keep_where(connector=connector, pending_fencing="True" if pending else "")
        return await answer(seen, lambda found: {**found.head, **found.connectors.page(paging, keep)}, NO_ITEMS)

    return router
