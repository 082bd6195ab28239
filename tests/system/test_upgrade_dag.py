"""The DAGs of the repository, there and back, against real workers, by ``dag.test()``.

``dag.test()`` on an approval never ends by itself and does not listen to SIGTERM, so it runs in a process of its own
with a deadline; the approvals are answered by REST at an api-server on the same database.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.airflow import free_ports
from airflow_eos_provider.lab.airflow_rest import AirflowRest
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.processes import spawn

pytestmark = pytest.mark.slow

DAGS = Path(__file__).parents[2] / "dags"
DAG_ID = "connect_exactly_once_upgrade"
DEADLINE_SECONDS = 400

DOWNGRADE_DAG_ID = "connect_exactly_once_downgrade"

RUN_DAG = f"""
import json, sys
from airflow.dag_processing.dagbag import DagBag
dag = DagBag({str(DAGS)!r}).dags[sys.argv[1]]
run = dag.test()
states = {{ti.task_id: str(ti.state) for ti in run.get_task_instances()}}
print("RESULT", json.dumps({{"run": str(run.state), "tasks": states}}))
"""


@dataclass
class Airflow:
    """A database and what is needed to use it."""

    environment: dict[str, str]
    folder: Path
    rest: AirflowRest

    def start_dag(self, dag_id: str) -> subprocess.Popen[str]:
        with (self.folder / "dag.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-c", RUN_DAG, dag_id],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def result(self) -> dict[str, object]:
        output = (self.folder / "dag.log").read_text()
        (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")] or [f"RESULT {{}} {output}"]
        return json.loads(line.removeprefix("RESULT "))


@pytest.fixture(scope="module")
def lab(lab_factory) -> Lab:
    return lab_factory(name="upgrade-dag", mode=Mode.DISABLED, workers=2, rebalance_delay_ms=3000)


@pytest.fixture(scope="module")
def airflow(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    folder = tmp_path_factory.mktemp("dag-test")
    (port,) = free_ports(1)
    password = secrets.token_urlsafe(12)
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({"admin": password}))
    binaries = Path(sys.executable).parent
    url = f"http://127.0.0.1:{port}"
    environment = {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT": json.dumps(
            {"conn_type": "kafka_connect", "extra": {"cluster_file": str(lab.cluster_file)}}
        ),
    }
    command = str(binaries / "airflow")
    subprocess.run([command, "db", "migrate"], env=environment, check=True, capture_output=True, timeout=120)
    server = spawn([command, "api-server"], log=folder / "api-server.log", cwd=folder, env=environment)
    try:
        with AirflowRest(url, "admin", password) as rest:
            wait_until_it_answers(rest)
            yield Airflow(environment, folder, rest)
    finally:
        server.stop(grace_seconds=10)


def wait_until_it_answers(rest: AirflowRest) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            rest.health()
            return
        except EosError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def approve_until_it_ends(airflow: Airflow, dag_id: str, process: subprocess.Popen[str]) -> list[str]:
    """Approve whatever is asked.

    :returns: the texts that were shown.
    """
    shown = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline, "the DAG did not end in time"
        for run_id in airflow.rest.run_states(dag_id) if airflow.rest.dag_is_known(dag_id) else ():
            for action in airflow.rest.required_actions(dag_id, run_id):
                airflow.rest.answer(dag_id, run_id, action, "Approve")
                shown.append(action.body)
        time.sleep(1)
    return shown


def run_dag(airflow: Airflow, dag_id: str = DAG_ID) -> list[str]:
    process = airflow.start_dag(dag_id)
    try:
        return approve_until_it_ends(airflow, dag_id, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=30)


def test_two_approvals_take_the_cluster_from_disabled_to_enabled(airflow: Airflow, lab: Lab) -> None:
    shown = run_dag(airflow)
    assert airflow.result() == {"run": "success", "tasks": dict.fromkeys(airflow.result()["tasks"], "success")}
    assert len(shown) == 2
    for body, mode in zip(shown, ("preparing", "enabled"), strict=True):
        assert f"+exactly.once.source.support={mode}" in body
        assert "stand still" in body
    assert {worker.mode_in_file() for worker in lab.workers} == {Mode.ENABLED}


def test_on_an_enabled_cluster_nobody_is_asked_and_nothing_is_touched(airflow: Airflow, lab: Lab) -> None:
    before = [lab.worker_process(index) for index in range(2)]
    assert run_dag(airflow) == []
    tasks = airflow.result()["tasks"]
    skipped = {task for task, state in tasks.items() if state == "skipped"}
    assert airflow.result()["run"] == "success"
    assert skipped == set(tasks) - {"preflight", "verify_enabled"}
    assert [lab.worker_process(index) for index in range(2)] == before


def test_one_approval_takes_the_cluster_straight_back_to_disabled(airflow: Airflow, lab: Lab) -> None:
    shown = run_dag(airflow, DOWNGRADE_DAG_ID)
    assert airflow.result() == {"run": "success", "tasks": dict.fromkeys(airflow.result()["tasks"], "success")}
    (body,) = shown
    assert "-exactly.once.source.support=enabled\n+exactly.once.source.support=disabled" in body
    assert "Exactly-once is given up" in body
    assert {worker.mode_in_file() for worker in lab.workers} == {Mode.DISABLED}


def test_on_a_disabled_cluster_the_way_back_asks_nobody(airflow: Airflow, lab: Lab) -> None:
    before = [lab.worker_process(index) for index in range(2)]
    assert run_dag(airflow, DOWNGRADE_DAG_ID) == []
    assert airflow.result()["run"] == "success"
    assert airflow.result()["tasks"]["plan_disabled"] == "skipped"
    assert [lab.worker_process(index) for index in range(2)] == before
