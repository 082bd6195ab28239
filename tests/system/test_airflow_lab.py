"""A real ``airflow standalone``, run by the lab: it comes up, is used by REST, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.lab.airflow import (
    MARKER_VARIABLE,
    AirflowLab,
    AirflowNotHealthyError,
    AirflowOptions,
    AirflowRecord,
    wait_for_dag,
)
from airflow_eos_provider.lab.airflow_rest import AirflowRestError, LogCursor
from airflow_eos_provider.processes import ProcessIdentity, identify

pytestmark = pytest.mark.slow

DAG = """
from __future__ import annotations
import logging, os, subprocess, sys
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Connection, dag, task

@dag(schedule=None, dag_id="lab_test")
def lab_test():
    @task
    def work():
        log = logging.getLogger("worker.of.the.test")
        # As a roll starts a Connect worker: a session of its own, a clean environment, no streams.
        outliving = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], env={}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in range(3):
            log.info("line %d", number)
        extra = Connection.get("kafka_connect_default").extra_dejson
        proxies = [name for name in os.environ if "http_proxy" in name.lower()]
        return {"outliving": outliving.pid, "extra": extra, "proxies": proxies}

    work() >> ApprovalOperator(task_id="approve", subject="May it go on?", body="A *plan*.")

lab_test()
"""


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dags")
    (folder / "lab_test.py").write_text(DAG, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, dags: Path) -> Iterator[AirflowLab]:
    connection = json.dumps({"conn_type": "kafka_connect", "extra": {"group_id": "a group"}})
    options = AirflowOptions(
        tmp_path_factory.mktemp("airflow"), dags, connections={"kafka_connect_default": connection}
    )
    airflow = AirflowLab.start(options)
    try:
        yield airflow
    finally:
        airflow.stop()


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(0.5)


def test_a_run_is_triggered_read_and_answered_as_a_person_would(lab: AirflowLab) -> None:
    wait_for_dag(lab, "lab_test", 60)
    outliving: ProcessIdentity | None = None
    with lab.rest() as rest:
        rest.unpause("lab_test")
        run_id = rest.trigger("lab_test")
        until(lambda: bool(rest.required_actions("lab_test", run_id)), 90, "the approval is asked for")
        (action,) = rest.required_actions("lab_test", run_id)
        assert (action.task_id, action.subject, action.body) == ("approve", "May it go on?", "A *plan*.")
        assert action.options == ("Approve", "Reject")

        cursor = LogCursor("lab_test", run_id, "work", try_number=1)
        lines = rest.new_log_lines(cursor)
        assert [line.text for line in lines if line.logger == "worker.of.the.test"] == ["line 0", "line 1", "line 2"]
        assert rest.new_log_lines(cursor) == []

        result = rest.xcom("lab_test", run_id, "work")
        outliving = identify(result["outliving"])
        assert outliving is not None
        try:
            assert result["extra"] == {"group_id": "a group"}
            assert result["proxies"] == []
            # What a task starts to outlive it is not the lab's to end.
            assert outliving not in lab.processes()

            # A process that has asked needs a moment to be parked; Airflow 3.3.2 loses an answer that comes earlier.
            until(
                lambda: {t.task_id: t.state for t in rest.task_instances("lab_test", run_id)}["approve"] != "running",
                60,
                "it is parked",
            )
            time.sleep(8)
            rest.answer("lab_test", run_id, action, "Approve")
            until(lambda: rest.run_state("lab_test", run_id) == "success", 90, "the run succeeds")
            assert rest.required_actions("lab_test", run_id) == ()
            with pytest.raises(AirflowRestError) as refused:
                rest.answer("lab_test", run_id, action, "Approve")
            assert refused.value.status in (404, 409)
        finally:
            outliving.stop(kill=True)


def test_the_password_is_in_a_file_for_its_owner_only_and_in_no_log(lab: AirflowLab) -> None:
    password = json.loads(lab.password_file.read_text())["admin"]
    assert lab.password_file.stat().st_mode & 0o077 == 0
    logs = [lab.log, *(path for path in (lab.home / "logs").rglob("*") if path.is_file())]
    assert len(logs) > 1
    for log in logs:
        assert password not in log.read_text(errors="replace")
    with lab.rest() as rest:
        rest.import_errors()
        assert password not in repr(rest)


def test_a_dag_that_is_not_there_is_told_with_the_errors_of_the_dag_files(lab: AirflowLab) -> None:
    with pytest.raises(UnreachableError, match="does not know the DAG no_such_dag"):
        wait_for_dag(lab, "no_such_dag", 2)


def test_whatever_is_killed_the_next_start_finds_and_ends_the_rest(tmp_path: Path, dags: Path) -> None:
    airflow = AirflowLab.start(AirflowOptions(tmp_path, dags))
    try:
        processes = airflow.processes()
        assert len(processes) > 5
        record = AirflowRecord.read(tmp_path)
        assert record is not None
        assert record.root is not None
        # The worst case: standalone and scheduler killed, their children without parents, and this object forgotten.
        airflow._stopping.set()
        scheduler = next(p for p in processes if "scheduler" in p.command_line())
        for victim in (record.root, scheduler):
            os.kill(victim.pid, signal.SIGKILL)
        until(lambda: not record.root.is_alive() and not scheduler.is_alive(), 10, "both are dead")
        assert any(process.is_alive() for process in processes)

        found = AirflowLab.load(tmp_path)
        assert found is not None
        assert AirflowLab.clear(tmp_path) >= 4
    finally:
        airflow.stop()
    assert [process for process in processes if process.is_alive()] == []
    assert processes_with(record.marker) == []
    assert AirflowLab.load(tmp_path) is None


def test_a_foreign_process_that_got_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    earlier = ProcessIdentity(me.pid, me.started_at - 100)
    AirflowRecord("no such marker", "http://127.0.0.1:1", root=earlier, processes=(earlier,)).write(tmp_path)
    assert AirflowLab.clear(tmp_path) == 0
    assert me.is_alive()


def test_an_airflow_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path, dags: Path) -> None:
    broken = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nonsense://"}
    with pytest.raises(AirflowNotHealthyError, match="ended while it was starting") as failure:
        AirflowLab.start(AirflowOptions(tmp_path, dags, environment=broken, deadline_seconds=60))
    assert "nonsense" in str(failure.value)
    assert AirflowLab.load(tmp_path) is None


def processes_with(marker: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER_VARIABLE) == marker:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
