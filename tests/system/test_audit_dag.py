"""In a real Airflow: the scheduled audit and the deferred sensor notice a stale worker within a minute, told once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.airflow_rest import AirflowRest, LogCursor
from airflow_eos_provider.lab.lab import Lab

pytestmark = pytest.mark.slow

AUDIT, SENSOR = "connect_audit", "drift_sensor"
NOTICED_SECONDS = 60.0
DEADLINE_SECONDS = 240.0

DAG_FILES = (
    Path(__file__).parents[2] / "dags" / "connect_audit.py",
    Path(__file__).parent / "dags" / "drift_sensor.py",
)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="audit", mode=Mode.ENABLED, workers=2, rebalance_delay_ms=500)


@pytest.fixture(scope="module")
def rest(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowRest]:
    folder = tmp_path_factory.mktemp("audit-airflow")
    dags = tmp_path_factory.mktemp("audit-dags")
    for file in DAG_FILES:
        shutil.copy(file, dags)
    connection = {"conn_type": "kafka_connect", "extra": {"cluster_file": str(lab.cluster_file)}}
    options = AirflowOptions(
        folder=folder, dags_folder=dags, connections={"kafka_connect_default": json.dumps(connection)}
    )
    airflow = AirflowLab.start(options)
    try:
        for dag_id in (AUDIT, SENSOR):
            wait_for_dag(airflow, dag_id, 120)
        with airflow.rest() as rest:
            yield rest
    finally:
        airflow.stop()


def test_a_stale_worker_is_noticed_within_a_minute_and_told_once(rest: AirflowRest, lab: Lab) -> None:
    rest.unpause(AUDIT)
    rest.unpause(SENSOR)
    sensor_run = rest.trigger(SENSOR)
    wait_for("the first look", lambda: "success" in rest.run_states(AUDIT).values())
    wait_for("the sensor to defer", lambda: states(rest, sensor_run) == ["deferred"])
    assert "failed" not in rest.run_states(AUDIT).values()

    with stale_worker(lab) as (worker_id, since):
        noticed: dict[str, float] = {}

        def all_have_noticed() -> bool:
            if rest.run_state(SENSOR, sensor_run) == "success":
                noticed.setdefault(SENSOR, time.monotonic() - since)
            if "failed" in rest.run_states(AUDIT).values():
                noticed.setdefault(AUDIT, time.monotonic() - since)
            return len(noticed) == 2

        wait_for("sensor and audit to notice", all_have_noticed)
        assert max(noticed.values()) < NOTICED_SECONDS, noticed
        wait_for("a second look that fails", lambda: len(failed_runs(rest)) > 1)

    found = rest.xcom(SENSOR, sensor_run, "wait_for_drift")
    assert [finding["subject"] for finding in found["findings"]] == [worker_id]
    first, second = (log_of(rest, run) for run in failed_runs(rest)[:2])
    for log in (first, second):
        assert f"{worker_id} is a member of the group, but not in the cluster file" in log
    assert "'eos drift' looks again" in first
    assert "'eos drift' looks again" not in second, "the same drift was told twice"

    before = set(rest.run_states(AUDIT))
    wait_for(
        "an audit that succeeds again",
        lambda: any(state == "success" for run, state in rest.run_states(AUDIT).items() if run not in before),
    )


@contextmanager
def stale_worker(lab: Lab) -> Iterator[tuple[str, float]]:
    """A worker in disabled that nobody has described; its id, and when it was started."""
    since = time.monotonic()
    index = lab.add_worker(mode=Mode.DISABLED, listed=False, wait=False)
    try:
        yield lab.connect_urls[index].removeprefix("http://"), since
    finally:
        lab.stop_worker(index)


def states(rest: AirflowRest, run_id: str) -> list[str | None]:
    return [task.state for task in rest.task_instances(SENSOR, run_id)]


def failed_runs(rest: AirflowRest) -> list[str]:
    return [run for run, state in rest.run_states(AUDIT).items() if state == "failed"]


def log_of(rest: AirflowRest, run_id: str) -> str:
    cursor = LogCursor(AUDIT, run_id, "look_for_drift", try_number=1)
    return "\n".join(line.text for line in rest.new_log_lines(cursor))


def wait_for(what: str, condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)
