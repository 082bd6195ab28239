"""Rows of declared changes: what ``eos … list --json`` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from airflow_eos_provider.changes.change import Change
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.ui.answers import NO_ITEMS, answer, see_cluster
from airflow_eos_provider.ui.documents import Listing, PagingDep, keep_where
from airflow_eos_provider.ui.looks import Looks

#: A snapshot of fencing takes a second to see which transactions stay open.
KEPT_SECONDS = 30.0


def look_at(change: Change[Any], cluster: ConnectCluster) -> Listing:
    """The snapshot of ``list``."""
    with change.session(cluster) as session:
        document = dict(change.look(session, change.request()).document)
    return Listing.of(document.pop(change.rows), document)


def routes(looks: Looks) -> APIRouter:
    """A route for each change that has rows, named by the first word of its command."""
    router = APIRouter()
    for change in CHANGES.values():
        if change.rows:
            path = f"/api/clusters/{{connection_id}}/{change.name.split()[0]}"
            router.add_api_route(path, _route(looks, change), methods=["GET"])
    return router


def _route(looks: Looks, change: Change[Any]) -> Callable[..., Any]:
    async def rows_of_the_change(connection_id: str, paging: PagingDep, request: Request) -> Response:
        seen = await see_cluster(
            looks, connection_id, change.name, lambda cluster: look_at(change, cluster), kept_seconds=KEPT_SECONDS
        )
        keep = keep_where(**{name: request.query_params.get(name, "") for name in change.filters})
        return await answer(seen, lambda found: found.page(paging, keep), NO_ITEMS)

    return rows_of_the_change
