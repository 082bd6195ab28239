"""What Airflow's own database says: runs of intervals, schedules, backfills, approvals; of DAGs that a user may see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.hitl import HITLDetail
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy.orm import Session

from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.ui import airflow_state
from airflow_eos_provider.ui.airflow_state import approvals_of, dags_of
from tests.page import auth_manager

FIRST = datetime(2013, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
ADMIN = SimpleAuthManagerUser(username="ada", role="admin")
NOBODY = SimpleAuthManagerUser(username="eve", role=None)

_DAG = """
from datetime import datetime
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow_eos_provider.assets.intervals import interval_asset

with DAG(
    "page_flights",
    start_date=datetime(2013, 1, 1, 5),
    schedule=CronDataIntervalTimetable("0 5 * * *", timezone="UTC"),
    catchup=True,
):
    EmptyOperator(task_id="write", outlets=[interval_asset("page-flights", "etl")])
"""


@pytest.fixture(scope="module", autouse=True)
def dag(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A DAG that writes a pipeline, with a run that failed, one that a backfill made, and an answered question."""
    auth_manager()
    folder = tmp_path_factory.mktemp("dags")
    file = folder / "page_flights.py"
    file.write_text(_DAG, encoding="utf-8")
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(str(file), bundle_path=folder, bundle_name="dags-folder")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        dag = SerializedDagModel.get_dag("page_flights", session=session)
        assert dag is not None
        runs = [
            dag.create_dagrun(
                run_id=f"run-{number}",
                logical_date=FIRST + number * DAY,
                data_interval=(FIRST + number * DAY, FIRST + (number + 1) * DAY),
                run_after=FIRST + (number + 1) * DAY,
                run_type=DagRunType.SCHEDULED,
                triggered_by=DagRunTriggeredByType.TEST,
                state=state,
                session=session,
            )
            for number, state in enumerate((DagRunState.FAILED, DagRunState.SUCCESS))
        ]
        backfill = Backfill(dag_id="page_flights", from_date=FIRST, to_date=FIRST + 3 * DAY)
        session.add(backfill)
        session.flush()
        session.add(BackfillDagRun(backfill_id=backfill.id, dag_run_id=runs[1].id, sort_ordinal=1))
        (instance,) = runs[0].get_task_instances(session=session)
        session.add(
            HITLDetail(
                ti_id=instance.id,
                options=["Approve", "Reject"],
                subject="Approve",
                body="Plan 3f1c09ab77d2",
                params={},
                responded_at=FIRST,
                responded_by={"id": "1", "name": "bob"},
                chosen_options=["Approve"],
            )
        )


def test_the_dag_of_a_pipeline_is_found_by_the_asset_that_it_updates() -> None:
    found = dags_of("page-flights", "etl", ADMIN)
    assert found.dag_id == "page_flights"
    runs = {interval.start: (run.run_id, run.state) for interval, run in found.runs.items()}
    assert runs == {FIRST: ("run-0", "failed"), FIRST + DAY: ("run-1", "success")}
    assert next(iter(found.runs.values())).link == "/dags/page_flights/runs/run-0"


def test_its_schedule_names_the_intervals_between_two_moments() -> None:
    schedule = dags_of("page-flights", "etl", ADMIN).schedule
    assert schedule is not None
    assert list(schedule(FIRST + 3 * DAY, FIRST + 5 * DAY)) == [
        Interval(FIRST + number * DAY, FIRST + (number + 1) * DAY) for number in (3, 4)
    ]


def test_a_dag_is_not_read_and_its_timetable_not_asked_again_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow_state._read_schedule.cache_clear()
    read = list[str]()

    def get_dag(dag_id: str, session: Session) -> Any:
        read.append(dag_id)
        return whole(dag_id, session=session)

    whole = SerializedDagModel.get_dag
    monkeypatch.setattr(SerializedDagModel, "get_dag", get_dag)
    first, second = (dags_of("page-flights", "etl", ADMIN).schedule for _ in range(2))
    assert first is second is not None
    assert read == ["page_flights"]
    gap = (FIRST + 3 * DAY, FIRST + 5 * DAY)
    assert first(*gap) is first(*gap)


def test_where_a_backfill_stands() -> None:
    (backfill,) = dags_of("page-flights", "etl", ADMIN).backfills
    assert (backfill["state"], backfill["done"], backfill["running"], backfill["total"]) == ("running", 1, 0, 1)


def test_who_has_approved_a_plan() -> None:
    (approval,) = approvals_of("3f1c09ab77d2", ADMIN)
    assert (approval["by"], approval["chosen"], approval["at"]) == ("bob", ["Approve"], FIRST.timestamp())
    assert approval["link"] == "/dags/page_flights/runs/run-0/tasks/write"
    assert approvals_of("ffffffffffff", ADMIN) == []


def test_of_a_dag_that_a_user_may_not_see_nothing_is_told() -> None:
    found = dags_of("page-flights", "etl", NOBODY)
    assert (found.dag_id, found.runs, found.backfills) == (None, {}, ())
    assert approvals_of("3f1c09ab77d2", NOBODY) == []
