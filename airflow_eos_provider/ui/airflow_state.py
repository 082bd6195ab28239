"""Airflow's own state: approvals of plans, DAG runs of intervals, progress of backfills.

Read from Airflow's database, and only for DAGs that the user may see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

import pendulum
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.configuration import conf
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from airflow_eos_provider.assets.intervals import interval_asset
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.ui.calendar import DagRunSeen, Schedule

#: Of more backfills, the newest are shown.
_MOST_BACKFILLS = 20

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
    """The address of a DAG run, or of a task in it, on Airflow's own pages."""
    return airflow_address("dags", dag_id, "runs", run_id, *(("tasks", task_id) if task_id else ()))


def airflow_address(*parts: str) -> str:
    """A path on the API server, which may have a path of its own."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return "/".join([base, *(quote(part, safe="") for part in parts)])


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


@dataclass(frozen=True, slots=True)
class PipelineDags:
    """The DAGs that write a pipeline, as far as a user may see them.

    :param dag_id: the one that has gone on the furthest by its schedule, else the first; None if there is none.
    :param runs: by interval the newest run.
    :param due: the start of the next interval that is due, by the scheduler; None if it has none.
    :param schedule: the intervals of that DAG's timetable between two moments.
    """

    dag_id: str | None
    runs: Mapping[Interval, DagRunSeen]
    due: datetime | None
    schedule: Schedule | None
    backfills: Sequence[Mapping[str, Any]]


NO_DAGS = PipelineDags(None, {}, None, None, ())


def dags_of(pipeline: str, group_id: str, user: BaseUser) -> PipelineDags:
    """The DAGs of a pipeline, by the asset that its tasks update.

    Blocking.
    """
    with create_session() as session:
        asset = interval_asset(pipeline, group_id)
        writers = session.scalars(
            select(TaskOutletAssetReference.dag_id)
            .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
            .where(AssetModel.uri == asset.uri)
            .distinct()
        ).all()
        readable = sorted(readable_dags(set(writers), user))
        if not readable:
            return NO_DAGS
        next_of = select(DagModel.dag_id, DagModel.next_dagrun_data_interval_start).where(DagModel.dag_id.in_(readable))
        due = {dag_id: start for dag_id, start in session.execute(next_of) if start is not None}
        first = max(sorted(due), key=due.__getitem__) if due else readable[0]
        schedule, backfills = _schedule_of(first, session), _backfills_of(readable, session)
        return PipelineDags(first, _runs_of(readable, session), due.get(first), schedule, backfills)


def _runs_of(dag_ids: Sequence[str], session: Session) -> dict[Interval, DagRunSeen]:
    rows = session.execute(
        select(
            DagRun.dag_id,
            DagRun.run_id,
            DagRun.state,
            DagRun.data_interval_start,
            DagRun.data_interval_end,
            DagRun.end_date,
        )
        .where(DagRun.dag_id.in_(dag_ids), DagRun.data_interval_start.is_not(None))
        .order_by(DagRun.id)
    )
    found = {}
    for dag_id, run_id, state, start, end, ended in rows:
        if end is not None and start < end and not (start.microsecond or end.microsecond):
            link = run_link(dag_id, run_id)
            found[Interval(start, end)] = DagRunSeen(dag_id, run_id, str(state), link, _seconds(ended))
    return found


#: What is known of timetables is kept: a page asks again and again, Airflow takes a millisecond for each interval of a
#: timetable, and longer to make a DAG of what it has stored.
_MOST_SCHEDULES = 1_000

#: So many gaps of one timetable are remembered.
_MOST_GAPS = 20_000


def _schedule_of(dag_id: str, session: Session) -> Schedule | None:
    """The intervals of a DAG's timetable; None if it has none of any width."""
    newest = select(SerializedDagModel.dag_hash).where(SerializedDagModel.dag_id == dag_id)
    return _read_schedule(dag_id, session.scalar(newest.order_by(SerializedDagModel.created_at.desc()).limit(1)) or "")


@lru_cache(_MOST_SCHEDULES)
def _read_schedule(dag_id: str, dag_hash: str) -> Schedule | None:
    """The schedule of this version of a DAG."""
    try:
        with create_session() as session:
            dag = SerializedDagModel.get_dag(dag_id, session=session)
    except Exception:  # another version's DAG, or a timetable of a plugin that is not here
        return None
    if dag is None or not dag.timetable.can_be_scheduled or dag.timetable.partitioned:
        return None

    @lru_cache(_MOST_GAPS)
    def between(start: datetime, end: datetime) -> tuple[Interval, ...]:
        return tuple(intervals(start, end))

    def intervals(start: datetime, end: datetime) -> Iterator[Interval]:
        for info in dag.iter_dagrun_infos_between(pendulum.instance(start), pendulum.instance(end)):
            interval = info.data_interval
            if interval is None or interval.start >= interval.end:
                return
            if interval.end > end:
                return
            yield Interval(interval.start, interval.end)
            if interval.end == end:
                return

    return between


def _backfills_of(dag_ids: Sequence[str], session: Session) -> list[dict[str, Any]]:
    """Progress of backfills, newest first."""
    backfills = session.scalars(
        select(Backfill).where(Backfill.dag_id.in_(dag_ids)).order_by(Backfill.id.desc()).limit(_MOST_BACKFILLS)
    ).all()
    counts: dict[int, Counter[str]] = {}
    rows = session.execute(
        select(BackfillDagRun.backfill_id, DagRun.state, BackfillDagRun.exception_reason, func.count())
        .join(DagRun, DagRun.id == BackfillDagRun.dag_run_id, isouter=True)
        .where(BackfillDagRun.backfill_id.in_([each.id for each in backfills]))
        .group_by(BackfillDagRun.backfill_id, DagRun.state, BackfillDagRun.exception_reason)
    )
    for backfill_id, state, reason, count in rows:
        counts.setdefault(backfill_id, Counter())["left_out" if reason else str(state)] += count
    return [_backfill(each, counts.get(each.id, Counter())) for each in backfills]


def _backfill(backfill: Backfill, counts: Counter[str]) -> dict[str, Any]:
    state = "completed" if backfill.completed_at else "paused" if backfill.is_paused else "running"
    return {
        "id": backfill.id,
        "dag_id": backfill.dag_id,
        "from": backfill.from_date.isoformat(),
        "to": backfill.to_date.isoformat(),
        "state": state,
        "done": counts["success"],
        "running": counts["running"] + counts["queued"],
        "failed": counts["failed"],
        "left_out": counts["left_out"],
        "total": counts.total(),
        "by": backfill.triggering_user_name,
        "link": airflow_address("dags", backfill.dag_id, "backfills"),
    }
