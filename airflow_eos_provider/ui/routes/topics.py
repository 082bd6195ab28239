"""Internal topics: what ``eos topics check --json`` prints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.changes.topics.look import InternalTopicsClient
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.ui.answers import KEPT_SLOW_SECONDS, answer, see_cluster
from airflow_eos_provider.ui.documents import redacted
from airflow_eos_provider.ui.looks import Looks, Problem


def look_at_topics(cluster: ConnectCluster) -> dict[str, Any]:
    """Check the group's internal topics and every connector's own."""
    with ConnectSession(cluster) as session:
        client = InternalTopicsClient(session)
        document = client.look().to_dict()
    unknown = [{"connector": name, **Problem.of(error).to_dict()} for name, error in client.unknown.items()]
    found: dict[str, Any] = redacted({**document, "unknown": unknown})
    return found


def routes(looks: Looks) -> APIRouter:
    """The route of internal topics."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/topics")
    async def topics(connection_id: str) -> Response:
        seen = await see_cluster(looks, connection_id, "topics", look_at_topics, kept_seconds=KEPT_SLOW_SECONDS)
        return await answer(seen, dict, {})

    return router
