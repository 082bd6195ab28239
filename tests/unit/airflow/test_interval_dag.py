"""The interval DAG that users get: its timetable has intervals, its form none of the cluster's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from airflow_eos_provider.dag_factories import interval_run_dag

DAGS = Path(__file__).parents[3] / "dags"


@pytest.fixture(scope="module")
def dag() -> DAG:
    return interval_run_dag(
        pipeline="orders",
        function="package:orders",
        topic="orders",
        max_active_runs=2,
        start_date=datetime(2013, 1, 1),
        selects_by_bounds=True,
        allow_before_end=True,
    )


def test_the_dags_of_the_repository_load_without_errors() -> None:
    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    assert {"flights_daily", "flights_daily_ready"} <= set(bag.dags)


def test_the_days_of_the_repositorys_dag_are_new_yorks() -> None:
    dag = DagBag(DAGS).dags["flights_daily"]
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert (dag.timetable.expression, str(dag.timetable.timezone)) == ("0 0 * * *", "America/New_York")


def test_the_downstream_dag_runs_on_the_asset_of_the_other() -> None:
    bag = DagBag(DAGS)
    (outlet,) = bag.dags["flights_daily"].get_task("write").outlets
    assert outlet.uri in str(bag.dags["flights_daily_ready"].timetable.asset_condition)


def test_the_default_timetable_has_intervals_with_width(dag: DAG) -> None:
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert not dag.catchup


def test_the_form_asks_for_interval_and_revision_only(dag: DAG) -> None:
    assert set(dag.params) == {"interval", "revision"}
    assert dag.max_active_runs == 2


def test_one_task_writes_with_what_the_factory_was_given(dag: DAG) -> None:
    (task,) = dag.tasks
    assert (task.pipeline, task.topic, task.function) == ("orders", "orders", "package:orders")
    assert (task.selects_by_bounds, task.allow_before_end) == (True, True)
    assert "params.interval" in task.interval
