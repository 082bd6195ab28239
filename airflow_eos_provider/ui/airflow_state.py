"""What Airflow itself knows: who has approved a plan, how DAG runs of intervals stand, where a backfill is.

Read from Airflow's database, which the API server has at hand, and only of DAGs that the user may see.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.dag import DagModel
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

#: Of more approvals of one plan, the newest are shown.
_MOST_APPROVALS = 20


def approvals_of(plan_hash: str, user: BaseUser) -> list[dict[str, Any]]:
    """The questions that showed a plan of this hash, with their answers, the newest first."""
    with create_session() as session:
        rows = session.execute(
            select(
                TaskInstance.dag_id,
                TaskInstance.run_id,
                TaskInstance.task_id,
                HITLDetail.created_at,
                HITLDetail.responded_at,
                HITLDetail.responded_by,
                HITLDetail.chosen_options,
            )
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(HITLDetail.body.contains(plan_hash, autoescape=True))
            .order_by(HITLDetail.created_at.desc())
            .limit(_MOST_APPROVALS)
        ).all()
    readable = readable_dags({row[0] for row in rows}, user)
    return [
        {
            "dag_id": dag_id,
            "run_id": run_id,
            "task_id": task_id,
            "asked_at": _seconds(asked),
            "at": _seconds(answered),
            "by": (by or {}).get("name"),
            "chosen": chosen,
            "link": run_link(dag_id, run_id, task_id),
        }
        for dag_id, run_id, task_id, asked, answered, by, chosen in rows
        if dag_id in readable
    ]


def readable_dags(dag_ids: Collection[str], user: BaseUser) -> set[str]:
    """Those of the DAGs that a user may read."""
    manager, readable = get_auth_manager(), set[str]()
    teams = DagModel.get_dag_id_to_team_name_mapping(sorted(dag_ids)) if dag_ids else {}
    for team in {teams.get(dag_id) for dag_id in dag_ids}:
        own = {dag_id for dag_id in dag_ids if teams.get(dag_id) == team}
        readable |= manager.filter_authorized_dag_ids(dag_ids=own, user=user, method="GET", team_name=team)
    return readable


def run_link(dag_id: str, run_id: str, task_id: str = "") -> str:
    """The address of a DAG run, or of a task in it, on Airflow's own pages; below the API server's address."""
    parts: Iterable[str] = ("dags", dag_id, "runs", run_id, *(("tasks", task_id) if task_id else ()))
    return "/".join(quote(part, safe="") for part in parts)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
