"""Answers of the page: a snapshot as a document, with its age and errors, made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import APIRouter, Request, Response

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.ui.documents import Filters, PagingDep, Table, redacted, to_json
from airflow_eos_provider.ui.looks import Looks, Problem, Seen

T = TypeVar("T")
R = TypeVar("R")

#: Documents are made here, and not in the threads that Airflow's own routes share.
_MAKERS = ThreadPoolExecutor(4, thread_name_prefix="eos-page")

#: Seconds for which a snapshot is reused: of a cluster, and of every topic (slow).
KEPT_SECONDS = 10.0
KEPT_SLOW_SECONDS = 60.0

#: A list before its first snapshot.
NO_ITEMS: Mapping[str, Any] = {"items": [], "total": 0, "found": 0}


class NotThereError(ConfigurationError):
    """The address names something that does not exist."""


async def in_thread(make: Callable[..., R], *arguments: Any) -> R:
    """Run a blocking function without blocking the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_MAKERS, partial(make, *arguments))


async def answer(seen: Seen[T], make: Callable[[T], Mapping[str, Any]], without: Mapping[str, Any]) -> Response:
    """A snapshot as a document."""
    return await in_thread(_answer, seen, make, without)


async def refused(error: EosError) -> Response:
    """An error as the answer of a request."""
    document = redacted({"errors": [Problem.of(error).to_dict()]})
    return Response(to_json(document), _status_of(Problem.of(error)), media_type="application/json")


def errors_of(*problems: Problem | None) -> list[dict[str, str]]:
    """Problems as documents have them."""
    return [problem.to_dict() for problem in problems if problem is not None]


def not_known(errors: Mapping[str, EosError]) -> list[dict[str, str]]:
    """Why something of these connectors is not known, as documents have it."""
    return [{"connector": name, **Problem.of(error).to_dict()} for name, error in errors.items()]


def cluster_of(connection_id: str) -> ConnectCluster:
    """The Connect cluster of a connection."""
    try:
        connection = KafkaConnectHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise NotThereError(f"There is no connection {connection_id}.", remedy="See Admin > Connections.") from None
    if connection.conn_type != KafkaConnectHook.conn_type:
        raise NotThereError(
            f"The connection {connection_id} is of type {connection.conn_type!r}.",
            expected=f"type {KafkaConnectHook.conn_type!r}",
        )
    return KafkaConnectHook(connection_id).get_cluster()


async def see_cluster(
    looks: Looks, connection_id: str, kind: str, look: Callable[[ConnectCluster], T], **limits: float
) -> Seen[T]:
    """A snapshot of the Connect cluster of a connection."""
    limits.setdefault("kept_seconds", KEPT_SECONDS)
    return await looks.see((connection_id, kind), lambda: look(cluster_of(connection_id)), **limits)


def add_rows(
    router: APIRouter,
    looks: Looks,
    path: str,
    kind: str,
    look: Callable[[ConnectCluster], T],
    table: Callable[[T], Table],
    filters: Filters,
    **limits: float,
) -> None:
    """Add the route of a list of a cluster: a page of those rows of a snapshot that are asked for."""

    async def rows(connection_id: str, paging: PagingDep, request: Request) -> Response:
        seen = await see_cluster(looks, connection_id, kind, look, **limits)
        keep = filters(request.query_params)
        return await answer(seen, lambda found: table(found).page(paging, keep), NO_ITEMS)

    router.add_api_route(f"/api/clusters/{{connection_id}}/{path}", rows, methods=["GET"])


def add_document(
    router: APIRouter,
    looks: Looks,
    path: str,
    look: Callable[[ConnectCluster], Mapping[str, Any]],
    kept_seconds: float = KEPT_SLOW_SECONDS,
) -> None:
    """Add the route of a document of a cluster, which is all of a snapshot."""

    async def document(connection_id: str) -> Response:
        return await answer(await see_cluster(looks, connection_id, path, look, kept_seconds=kept_seconds), dict, {})

    router.add_api_route(f"/api/clusters/{{connection_id}}/{path}", document, methods=["GET"])


def _answer(seen: Seen[T], make: Callable[[T], Mapping[str, Any]], without: Mapping[str, Any]) -> Response:
    head: dict[str, Any] = {
        "looked_at": seen.looked_at(),
        "still_looking": seen.is_waiting,
        "errors": errors_of(seen.problem),
    }
    status = 200
    if seen.value is None:
        body: Mapping[str, Any] = without
        status = _status_of(seen.problem) if seen.problem else 200
    else:
        try:
            body = make(seen.value)
        except EosError as error:
            head["errors"], body = errors_of(Problem.of(error)), without
            status = _status_of(Problem.of(error))
    content = to_json({**head, **body})
    return Response(content, status, media_type="application/json")


def _status_of(problem: Problem) -> int:
    return 404 if problem.kind == NotThereError.__name__ else 200
