"""Rights: what ``eos acl check --json`` prints, by the brokers' ACLs alone; the page attempts nothing."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.check import check as check_rights
from airflow_eos_provider.acls.facts import Principals, facts_of
from airflow_eos_provider.acls.look import look, read_authorizer
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.ui.answers import KEPT_SLOW_SECONDS, NO_ITEMS, answer, see_cluster
from airflow_eos_provider.ui.documents import Listing, PagingDep, keep_where
from airflow_eos_provider.ui.looks import Looks


def look_at_rights(cluster: ConnectCluster) -> Listing:
    """Which rights exactly-once needs, and which of them the brokers' ACLs give."""
    with ConnectSession(cluster) as session:
        facts = facts_of(look(session), Mode.ENABLED, Principals())
        report = check_rights(
            facts.rules(), read_authorizer(session.kafka), {}, facts.notes, [text for _, text in facts.gaps]
        )
    return Listing.of((each.to_dict() for each in report.findings), _head(report))


def routes(looks: Looks) -> APIRouter:
    """The route of rights."""
    router = APIRouter()

    @router.get("/api/clusters/{connection_id}/rights")
    async def rights(connection_id: str, paging: PagingDep, verdict: str = "", principal: str = "") -> Response:
        seen = await see_cluster(looks, connection_id, "rights", look_at_rights, kept_seconds=KEPT_SLOW_SECONDS)
        keep = keep_where(verdict=verdict, principal=principal)
        return await answer(seen, lambda found: found.page(paging, keep), NO_ITEMS)

    return router


def _head(report: AclReport) -> dict[str, Any]:
    return {
        "mode": str(Mode.ENABLED),
        "authorizer": report.has_authorizer,
        "missing": len(report.lacking),
        "unknown": len(report.unknown),
        "notes": list(report.notes),
        "not_known": list(report.gaps),
    }
