"""Internal topics: what ``eos topics check --json`` prints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.ui.answers import add_document, not_known
from airflow_eos_provider.ui.documents import redacted
from airflow_eos_provider.ui.looks import Looks


def look_at_topics(cluster: ConnectCluster) -> dict[str, Any]:
    """Check the group's internal topics and every connector's own."""
    with ConnectSession(cluster) as session:
        client = InternalTopicsClient(session)
        document = client.look().to_dict()
    found: dict[str, Any] = redacted({**document, "unknown": not_known(client.unknown)})
    return found


def routes(looks: Looks) -> APIRouter:
    """The route of internal topics."""
    router = APIRouter()
    add_document(router, looks, "topics", look_at_topics)
    return router
