"""In a real Airflow with its default heartbeats, a person who clicks at once does not lose the run."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.airflow_rest import AirflowRest, AirflowRestError, RequiredAction

pytestmark = pytest.mark.slow

DAG_ID = "quick_approval"
RUNS = 10
DEADLINE_SECONDS = 300


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowLab]:
    options = AirflowOptions(
        folder=tmp_path_factory.mktemp("airflow"),
        dags_folder=Path(__file__).parent / "dags",
        connections={
            "brokers": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{closed_port()}"}})
        },
        environment={"AIRFLOW__CORE__TEST_CONNECTION": "Enabled"},
    )
    lab = AirflowLab.start(options)
    try:
        wait_for_dag(lab, DAG_ID, 120)
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def rest(airflow: AirflowLab) -> Iterator[AirflowRest]:
    with airflow.rest() as rest:
        rest.unpause(DAG_ID)
        yield rest


def answer_at_once(rest: AirflowRest, run_id: str, option: str) -> RequiredAction:
    """Answer the very moment that the question can be seen: not when the page shows it, which is later."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for action in rest.required_actions(DAG_ID, run_id):
            try:
                rest.answer(DAG_ID, run_id, action, option)
            except AirflowRestError as error:
                if error.status < 500:  # SQLite was busy and the answer was not taken: a person would click again
                    raise
            else:
                return action
        time.sleep(0.05)
    raise AssertionError(f"nothing was asked within {DEADLINE_SECONDS} s")


def ended(rest: AirflowRest, run_id: str) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        state = rest.run_state(DAG_ID, run_id)
        if state in ("success", "failed"):
            return state
        time.sleep(0.2)
    raise AssertionError(f"{run_id} did not end within {DEADLINE_SECONDS} s")


def tries(rest: AirflowRest, run_id: str) -> int:
    return next(task.try_number for task in rest.task_instances(DAG_ID, run_id) if task.task_id == "approve")


def test_ten_approvals_given_at_once_all_survive(rest: AirflowRest) -> None:
    runs = []
    for _ in range(RUNS):
        run_id = rest.trigger(DAG_ID)
        answer_at_once(rest, run_id, "Approve")
        runs.append(run_id)
    assert [ended(rest, run_id) for run_id in runs] == ["success"] * RUNS
    # Without one that Airflow lost, this test would have proven nothing.
    assert max(tries(rest, run_id) for run_id in runs) > 1
    assert rest.xcom(DAG_ID, runs[0], "approve")["approved_by"] == "admin"


def test_a_rejection_given_at_once_is_not_lost_either(rest: AirflowRest) -> None:
    run_id = rest.trigger(DAG_ID)
    action = answer_at_once(rest, run_id, "Reject")
    assert "Plan hash" in action.body
    assert ended(rest, run_id) == "failed"
    states = {task.task_id: task.state for task in rest.task_instances(DAG_ID, run_id)}
    assert (states["approve"], states["after"]) == ("failed", "upstream_failed")


def test_the_test_button_names_everything_that_does_not_answer(airflow: AirflowLab) -> None:
    worker = closed_port()
    password = json.loads(airflow.password_file.read_text())["admin"]
    with httpx.Client(base_url=airflow.url, timeout=60, trust_env=False) as client:
        token = client.post("/auth/token", json={"username": "admin", "password": password}).json()["access_token"]
        answer = client.post(
            "/api/v2/connections/test",
            headers={"Authorization": f"Bearer {token}"},
            json={
                "connection_id": "kafka_connect_default",
                "conn_type": "kafka_connect",
                "extra": json.dumps(
                    {"kafka_conn_id": "brokers", "group_id": "g", "workers": [{"url": f"http://127.0.0.1:{worker}"}]}
                ),
            },
        ).json()
    assert answer["status"] is False
    for part in ("Kafka: FAILED", "group g: FAILED", f"worker 127.0.0.1:{worker}: FAILED"):
        assert part in answer["message"]
