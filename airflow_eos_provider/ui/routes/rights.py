"""Rights: what ``eos acl check --json`` prints, by the brokers' ACLs alone; the page attempts nothing."""

from __future__ import annotations

from fastapi import APIRouter

from airflow_eos_provider.acls.check import check as check_rights
from airflow_eos_provider.acls.cluster_facts import Principals, facts_of
from airflow_eos_provider.acls.read_rights import look, read_authorizer
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.ui.answers import KEPT_SLOW_SECONDS, add_rows
from airflow_eos_provider.ui.documents import Table, filter_by
from airflow_eos_provider.ui.looks import Looks


def look_at_rights(cluster: ConnectCluster) -> Table:
    """Which rights exactly-once needs, and which of them the brokers' ACLs give."""
    with ConnectSession(cluster) as session:
        facts = facts_of(look(session), Mode.ENABLED, Principals())
        report = check_rights(
            facts.rules(), read_authorizer(session.kafka), {}, facts.notes, [text for _, text in facts.gaps]
        )
    head = {
        "mode": str(Mode.ENABLED),
        "authorizer": report.has_authorizer,
        "missing": len(report.lacking),
        "unknown": len(report.unknown),
        "notes": list(report.notes),
        "not_known": list(report.gaps),
    }
    return Table.of((each.to_dict() for each in report.findings), head)


def routes(looks: Looks) -> APIRouter:
    """The route of rights."""
    router, filters = APIRouter(), filter_by("verdict", "principal")
    add_rows(router, looks, "rights", "rights", look_at_rights, Table.itself, filters, kept_seconds=KEPT_SLOW_SECONDS)
    return router
