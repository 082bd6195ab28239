"""The DAGs of the repository against real workers that are enabled, by ``dag.test()``; the demo runs the way up.

``dag.test()`` on an approval never ends by itself and does not listen to SIGTERM, so it runs in another process, with a
deadline; one process for all, since Airflow and the API that ``dag.test()`` serves its tasks take six seconds of CPU to
load. The approvals are answered by REST at an api-server on the same database.
"""

from __future__ import annotations

import contextlib
import json
import re
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
from airflow_eos_provider.lab.airflow_rest import FINAL_STATES, AirflowRest
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.postgres import Postgres
from airflow_eos_provider.processes import spawn
from tests.system.modes import bring_to

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DAGS = Path(__file__).parents[2] / "dags"
DAG_ID = "connect_exactly_once_upgrade"
DEADLINE_SECONDS = 600

DOWNGRADE_DAG_ID = "connect_exactly_once_downgrade"

#: Runs each DAG that its standard input names.
RUN_DAGS = f"""
import json, sys
from airflow.dag_processing.dagbag import DagBag
for line in sys.stdin:
    run = DagBag({str(DAGS)!r}).dags[line.strip()].test()
    states = {{ti.task_id: str(ti.state) for ti in run.get_task_instances()}}
    print("RESULT", json.dumps({{"run": str(run.state), "tasks": states}}), flush=True)
"""


@dataclass
class Airflow:
    """A database and what is needed to use it.

    :ivar runner: the process of :data:`RUN_DAGS`; its output is in :attr:`log`.
    """

    folder: Path
    rest: AirflowRest
    runner: subprocess.Popen[str]
    _said_before: int = 0

    @property
    def log(self) -> Path:
        return self.folder / "dag.log"

    def start_dag(self, dag_id: str) -> None:
        assert self.runner.poll() is None, self.log.read_text()
        assert self.runner.stdin is not None
        self._said_before = self.log.stat().st_size
        self.runner.stdin.write(f"{dag_id}\n")
        self.runner.stdin.flush()

    def output(self) -> str:
        """What was printed since the last DAG was started."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return log.read().decode(errors="replace")  # it may be in the midst of a character

    def has_ended(self) -> bool:
        return self.runner.poll() is not None or bool(self._results())

    def result(self) -> dict[str, object]:
        (line,) = self._results() or [f"RESULT {{}} {self.output()}"]
        return json.loads(line.removeprefix("RESULT "))

    def _results(self) -> list[str]:
        lines = self.output().splitlines(keepends=True)
        return [line for line in lines if line.startswith("RESULT ") and line.endswith("\n")]


@pytest.fixture(scope="module")
def lab(lab_factory) -> Lab:
    return lab_factory(
        name="upgrade-dag",
        mode=Mode.ENABLED,
        workers=2,
        rebalance_delay_ms=1000,
        session_timeout_ms=6000,
    )


@pytest.fixture(scope="module")
def airflow(lab: Lab, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    folder = tmp_path_factory.mktemp("dag-test")
    (port,) = free_ports(1)
    password = secrets.token_urlsafe(12)
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({"admin": password}))
    binaries = Path(sys.executable).parent
    url = f"http://127.0.0.1:{port}"
    postgres.create_database("dag_test")
    environment = {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url("dag_test"),
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
    subprocess.run([command, "db", "migrate"], env=environment, check=True, capture_output=True, timeout=300)
    server = spawn([command, "api-server"], log=folder / "api-server.log", cwd=folder, env=environment)
    try:
        with AirflowRest(url, "admin", password) as rest:
            wait_until_it_answers(rest)
            with running_dags(environment, folder) as runner:
                yield Airflow(folder, rest, runner)
    finally:
        server.stop(grace_seconds=10)


@contextlib.contextmanager
def running_dags(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The process of :data:`RUN_DAGS`."""
    with (folder / "dag.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN_DAGS],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()  # between two DAGs it only waits for the next
        process.communicate(timeout=120)


def wait_until_it_answers(rest: AirflowRest) -> None:
    deadline = time.monotonic() + 900
    while True:
        try:
            rest.health()
            return
        except EosError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def approve_until_it_ends(airflow: Airflow, dag_id: str) -> list[str]:
    """Approve whatever is asked.

    :returns: the texts that were shown.
    """
    shown = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not airflow.has_ended():
        assert time.monotonic() < deadline, "the DAG did not end in time"
        states = airflow.rest.run_states(dag_id) if airflow.rest.dag_is_known(dag_id) else {}
        for run_id in [run_id for run_id, state in states.items() if state not in FINAL_STATES]:
            for action in airflow.rest.required_actions(dag_id, run_id):
                airflow.rest.answer(dag_id, run_id, action, "Approve")
                shown.append(action.body)
        time.sleep(1)
    return shown


def run_dag(airflow: Airflow, dag_id: str = DAG_ID) -> list[str]:
    airflow.start_dag(dag_id)
    try:
        return approve_until_it_ends(airflow, dag_id)
    except BaseException:
        airflow.runner.kill()  # a DAG that was not waited for would run beside the next
        raise


def test_on_an_enabled_cluster_no_approval_is_asked_for_and_nothing_is_touched(airflow: Airflow, lab: Lab) -> None:
    bring_to(lab, Mode.ENABLED)
    before = [lab.worker_process(index) for index in range(2)]
    assert run_dag(airflow) == []
    tasks = airflow.result()["tasks"]
    skipped = {task for task, state in tasks.items() if state == "skipped"}
    assert airflow.result()["run"] == "success", airflow.output()
    assert skipped == set(tasks) - {"preflight", "preflight_connectors", "verify_enabled"}
    assert [lab.worker_process(index) for index in range(2)] == before


def test_one_approval_takes_the_cluster_straight_back_to_disabled(airflow: Airflow, lab: Lab) -> None:
    bring_to(lab, Mode.ENABLED)
    shown = run_dag(airflow, DOWNGRADE_DAG_ID)
    assert airflow.result()["run"] == "success", airflow.output()
    assert set(airflow.result()["tasks"].values()) == {"success"}
    (body,) = shown
    assert "-exactly.once.source.support=enabled\n+exactly.once.source.support=disabled" in body
    assert "Exactly-once is given up" in body
    loggers = set(re.findall(r"\[([\w.]+)\] loc=", airflow.output()))
    assert any(name.endswith(".ConnectRollingUpgradeOperator") for name in loggers)
    assert {name for name in loggers if name.split(".")[0] in ("kafka", "httpx")} == set()
    assert {worker.mode_in_file() for worker in lab.workers} == {Mode.DISABLED}


def test_on_a_disabled_cluster_the_way_back_asks_for_no_approval(airflow: Airflow, lab: Lab) -> None:
    bring_to(lab, Mode.DISABLED)
    before = [lab.worker_process(index) for index in range(2)]
    assert run_dag(airflow, DOWNGRADE_DAG_ID) == []
    assert airflow.result()["run"] == "success", airflow.output()
    assert airflow.result()["tasks"]["plan_disabled"] == "skipped"
    assert [lab.worker_process(index) for index in range(2)] == before
