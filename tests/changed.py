"""Carries a declared change out in this process, as a command with ``--yes`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_eos_provider.changes.change import Change, Plan
from airflow_eos_provider.changes.engine import carry_out, planned
from airflow_eos_provider.connect.cluster.description import ConnectCluster


def changed(
    cluster: ConnectCluster,
    change: Change[Any],
    request: Any,
    *,
    actor: str = "a test",
    reason: str = "",
    report: Callable[[str], None] = lambda line: None,
) -> Any:
    """Plan a change and carry it out."""
    with change.session(cluster) as session:
        plan = request if isinstance(request, Plan) else planned(change, session, request)
        return carry_out(change, session, plan, actor=actor, reason=reason, report=report)
