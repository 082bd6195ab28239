"""The interval DAG that users get: its timetable has intervals, its form none of the cluster's."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronDataIntervalTimetable, CronTriggerTimetable
from airflow.sdk.timezone import coerce_datetime
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import TimeRestriction

from airflow_eos_provider.dag_factories import interval_run_dag
from airflow_eos_provider.errors import ConfigurationError

DAGS = Path(__file__).parents[3] / "dags"


@pytest.fixture(scope="module")
def dag() -> DAG:
    return interval_run_dag(
        pipeline="orders",
        python_callable="package:orders",
        topic="orders",
        max_active_runs=2,
        start_date=datetime(2013, 1, 1),
        selects_by_bounds=True,
        allow_before_end=True,
    )


def test_the_days_of_the_repositorys_dag_are_new_yorks() -> None:
    dag = DagBag(DAGS).dags["flights_daily"]
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert (dag.timetable.expression, str(dag.timetable.timezone)) == ("0 0 * * *", "America/New_York")


def test_the_downstream_dag_runs_on_the_asset_of_the_other() -> None:
    bag = DagBag(DAGS)
    (outlet,) = bag.dags["flights_daily"].get_task("write").outlets
    assert outlet.uri in str(bag.dags["flights_daily_ready"].timetable.asset_condition)


def scheduled(schedule: Any, start_date: datetime | None = None) -> DAG:
    return interval_run_dag(
        pipeline="orders", python_callable="package:orders", schedule=schedule, start_date=start_date
    )


def first_interval(dag: DAG) -> tuple[str, str]:
    restriction = TimeRestriction(earliest=coerce_datetime(dag.start_date), latest=None, catchup=True)
    info = coerce_to_core_timetable(dag.timetable).next_dagrun_info(
        last_automated_data_interval=None, restriction=restriction
    )
    assert info is not None
    assert info.data_interval is not None
    return info.data_interval.start.isoformat(), info.data_interval.end.isoformat()


NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("schedule", "start", "interval"),
    [
        ("@daily", datetime(2013, 1, 1), ("2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00")),
        (
            "@daily",
            datetime(2013, 1, 1, tzinfo=NEW_YORK),
            ("2013-01-01T05:00:00+00:00", "2013-01-02T05:00:00+00:00"),
        ),
        ("0 */6 * * *", datetime(2013, 1, 1), ("2013-01-01T00:00:00+00:00", "2013-01-01T06:00:00+00:00")),
        (timedelta(hours=2), datetime(2013, 1, 1), ("2013-01-01T00:00:00+00:00", "2013-01-01T02:00:00+00:00")),
        (
            CronTriggerTimetable("0 0 * * *", timezone="UTC", interval=timedelta(days=1)),
            datetime(2013, 1, 2),
            ("2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"),
        ),
    ],
)
def test_a_schedule_as_users_write_it_has_data_intervals(
    schedule: Any, start: datetime, interval: tuple[str, str]
) -> None:
    assert first_interval(scheduled(schedule, start)) == interval


def test_without_a_schedule_runs_are_manual() -> None:
    assert not scheduled(None).timetable.can_be_scheduled


@pytest.mark.parametrize(
    "schedule",
    [
        "@once",
        "@continuous",
        Asset("x"),
        [Asset("x")],
        Asset("x") | Asset("y"),
        AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("@daily", timezone="UTC"), assets=[Asset("x")]),
        CronTriggerTimetable("0 0 * * *", timezone="UTC"),
        5,
    ],
    ids=str,
)
def test_a_schedule_without_data_intervals_is_refused(schedule: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"of the DAG orders_intervals has no data intervals"):
        scheduled(schedule)


def test_the_form_asks_for_interval_and_revision_only(dag: DAG) -> None:
    assert set(dag.params) == {"interval", "revision"}
    assert dag.max_active_runs == 2


def test_one_task_writes_with_what_the_factory_was_given(dag: DAG) -> None:
    (task,) = dag.tasks
    assert (task.pipeline, task.topic, task.python_callable) == ("orders", "orders", "package:orders")
    assert (task.selects_by_bounds, task.allow_before_end) == (True, True)
    assert "params.interval" in task.interval
