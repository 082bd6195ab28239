"""The interval DAG of the repository in a real Airflow, with real Spark and a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import statuses
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.airflow_rest import FINAL_STATES, AirflowRest, LogCursor
from airflow_eos_provider.lab.demo_intervals import DAY, FIRST_DAY, Killer, compare_days, connections
from airflow_eos_provider.lab.demo_screen import Screen
from airflow_eos_provider.lab.drain import drain
from airflow_eos_provider.lab.flights_by_month import write_months
from airflow_eos_provider.lab.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPOSITORY_DAGS = Path(__file__).parents[2] / "dags"
EXTRA_DAGS = Path(__file__).parent / "dags"

DAG_ID = "flights_daily"
DOWNSTREAM_ID = "flights_daily_ready"
EXTRAS_ID = "interval_extras"
DAYS = 4


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    lab = lab_factory(name="intervals", workers=1)
    for topic in ("flights.daily", "flights.decorated"):
        lab.create_topic(topic, 3)
    return lab


@pytest.fixture(scope="module")
def airflow(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowLab]:
    folder = tmp_path_factory.mktemp("airflow")
    dags, flights = folder / "dags", folder / "flights"
    dags.mkdir()
    shutil.copy(REPOSITORY_DAGS / "interval_run.py", dags)
    shutil.copy(EXTRA_DAGS / "interval_extras.py", dags)
    write_months(flights, months=frozenset({"2013-01"}))
    options = AirflowOptions(
        folder=folder / "airflow",
        dags_folder=dags,
        connections={name: json.dumps(text) for name, text in connections(lab.bootstrap_servers).items()},
        environment={
            "AIRFLOW_VAR_FLIGHTS_FOLDER": str(flights),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        },
    )
    running = AirflowLab.start(options)
    try:
        for dag_id in (DAG_ID, DOWNSTREAM_ID, EXTRAS_ID):
            wait_for_dag(running, dag_id, 120.0, lambda line: None)
        yield running
    finally:
        running.stop()


@pytest.fixture
def rest(airflow: AirflowLab) -> Iterator[AirflowRest]:
    with airflow.rest() as rest:
        yield rest


def wait_for_runs(rest: AirflowRest, dag_id: str, count: int, seconds: float = 300.0) -> dict[str, str]:
    """The states of a DAG's runs, once at least so many have ended and none is under way."""
    deadline = time.monotonic() + seconds
    while True:
        states = rest.run_states(dag_id)
        if len(states) >= count and all(state in FINAL_STATES for state in states.values()):
            return states
        assert time.monotonic() < deadline, states
        time.sleep(0.5)


def log_of(rest: AirflowRest, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
    return "\n".join(line.text for line in rest.new_log_lines(LogCursor(dag_id, run_id, task_id, try_number)))


def eos(lab: Lab, *arguments: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "eos"), "intervals", *arguments]
    output = subprocess.run(
        [*command, "--cluster", str(lab.cluster_file), "--json"], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(output.stdout)


def test_a_backfill_backwards_with_kills_on_the_way_writes_every_day_exactly_once(
    lab: Lab, airflow: AirflowLab, rest: AirflowRest
) -> None:
    with Killer(airflow, Screen(Console(quiet=True)), after=(0, 1)) as killer:
        rest.unpause(DOWNSTREAM_ID)
        rest.unpause(DAG_ID)
        last = FIRST_DAY + (DAYS - 1) * DAY
        rest.backfill(DAG_ID, FIRST_DAY, last, max_active_runs=2, backwards=True)
        deadline = time.monotonic() + 300
        while not (states := rest.run_states(DAG_ID)) or any(state not in FINAL_STATES for state in states.values()):
            assert time.monotonic() < deadline, states
            killer.completed = sum(state == "success" for state in states.values())
            time.sleep(0.5)
    assert list(states.values()) == ["success"] * DAYS
    assert [entry["what"] for entry in killer.killed] == ["worker", "driver"]

    summaries = [rest.xcom(DAG_ID, run_id, "write") for run_id in states]
    tries = [rest.task_instances(DAG_ID, run_id)[0].try_number for run_id in states]
    assert max(tries) == 2  # the killed driver's
    comparison, days = compare_days(
        drain(lab.cluster().kafka, "flights.daily"), DAYS, {summary["interval"]: summary for summary in summaries}
    )
    assert comparison.exactly_once, comparison.examples
    assert [(day["missing"], day["duplicates"], day["complete"]) for day in days] == [(0, 0, True)] * DAYS


def test_the_downstream_dag_was_told_every_day(rest: AirflowRest) -> None:
    deadline = time.monotonic() + 120
    while True:
        runs = wait_for_runs(rest, DOWNSTREAM_ID, 1)
        told = {entry["interval"] for run in runs for entry in rest.xcom(DOWNSTREAM_ID, run, "report")}
        if len(told) == DAYS:
            break
        assert time.monotonic() < deadline, told
        time.sleep(1)
    assert min(told).startswith(f"{FIRST_DAY:%Y-%m-%d}")


def test_the_command_line_lists_the_days_and_finds_every_record_once(lab: Lab) -> None:
    runs = eos(lab, "list")["runs"]
    assert {run["state"] for run in runs if run["run"].startswith("flights.daily@")} == {"complete"}
    verified = eos(lab, "verify", "--pipeline", "flights.daily", "--topic", "flights.daily")
    assert verified["holds"] is True
    assert verified["found"]["records"] == sum(r["records"] for r in runs if r["run"].startswith("flights.daily@"))
    assert verified["found"]["records"] > 1000


def test_clearing_a_finished_day_is_a_quick_no_op(lab: Lab, rest: AirflowRest) -> None:
    run_id = next(iter(rest.run_states(DAG_ID)))
    before = rest.xcom(DAG_ID, run_id, "write")
    attempts = rest.task_instances(DAG_ID, run_id)[0].try_number
    rest.clear(DAG_ID, run_id)
    wait_for_runs(rest, DAG_ID, DAYS)
    after = rest.xcom(DAG_ID, run_id, "write")
    assert rest.task_instances(DAG_ID, run_id)[0].try_number > attempts
    assert after["already"] is True
    assert (after["records"], after["digest"]) == (before["records"], before["digest"])
    assert after["seconds"] < 5  # no Spark was started: a session alone takes longer


def test_a_run_by_hand_without_an_interval_fails_at_once_and_says_what_to_do(rest: AirflowRest) -> None:
    run_id = rest.trigger(DAG_ID)
    assert wait_for_runs(rest, DAG_ID, DAYS + 1)[run_id] == "failed"
    (task,) = rest.task_instances(DAG_ID, run_id)
    assert task.try_number == 1
    text = log_of(rest, DAG_ID, run_id, "write")
    assert "has no data interval" in text
    assert "params.interval" in text


def test_an_overlapping_interval_is_refused_and_not_tried_again(lab: Lab, rest: AirflowRest) -> None:
    half_a_day = timedelta(hours=12)
    start = FIRST_DAY + half_a_day
    interval = f"{start.isoformat()}/{(start + DAY).isoformat()}"
    run_id = rest.trigger(DAG_ID, {"interval": interval})
    assert wait_for_runs(rest, DAG_ID, DAYS + 2)[run_id] == "failed"
    assert rest.task_instances(DAG_ID, run_id)[0].try_number == 1
    assert "overlaps" in log_of(rest, DAG_ID, run_id, "write")


def test_the_deferred_sensor_waits_for_a_day_and_the_decorator_writes_it(lab: Lab, rest: AirflowRest) -> None:
    day = FIRST_DAY + DAYS * DAY
    rest.unpause(EXTRAS_ID)
    rest.backfill(EXTRAS_ID, day, day)
    deadline = time.monotonic() + 60
    while _states(rest).get("wait") != "deferred":
        assert time.monotonic() < deadline, _states(rest)
        time.sleep(0.5)
    rest.backfill(DAG_ID, day, day)
    assert list(wait_for_runs(rest, EXTRAS_ID, 1).values()) == ["success"]
    (run_id,) = rest.run_states(EXTRAS_ID)
    summary = rest.xcom(EXTRAS_ID, run_id, "decorated")
    pipeline = Pipeline(name="flights.decorated", group_id="eos-intervals", kafka=lab.cluster().kafka)
    (status,) = statuses(pipeline)
    assert (status.complete, status.records) == (True, summary["records"])
    assert drain(lab.cluster().kafka, "flights.decorated").records == summary["records"]
    arguments = ("verify", summary["run"], "--topic", "flights.decorated", "--header", "eos-run")
    assert eos(lab, *arguments)["holds"] is True


def _states(rest: AirflowRest) -> dict[str, str | None]:
    runs = rest.run_states(EXTRAS_ID)
    return {task.task_id: task.state for run_id in runs for task in rest.task_instances(EXTRAS_ID, run_id)}
