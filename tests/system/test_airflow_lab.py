"""A real Airflow on a real PostgreSQL that does not come up: what fails is named, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.servers.airflow import MARKER_VARIABLE, AirflowLab, AirflowOptions
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.local_processes import identify


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    """A folder without DAGs: these tests need none."""
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def started(folder: Path, pid: int, marker: str) -> None:
    """The files of an Airflow in this folder whose scheduler has this pid."""
    (folder / "airflow.json").write_text(json.dumps({"marker": marker, "url": "http://127.0.0.1:1"}))
    (folder / "pids").mkdir()
    (folder / "pids" / "scheduler-1").write_text(f"{pid}\n")


def test_a_foreign_process_that_got_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "120"], start_new_session=True) as foreign:
        try:
            started(tmp_path, foreign.pid, "no such marker")
            os.utime(tmp_path / "pids" / "scheduler-1", (0, 0))
            assert AirflowLab.clear(tmp_path) == 0
            assert foreign.poll() is None
        finally:
            foreign.kill()


#: Ends as a scheduler does that is just starting the processes of its executor: with one more, which renames itself.
FORKS_AT_ITS_END = """
import os, signal, sys
from setproctitle import setproctitle

def end(*_):
    reading, writing = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        setproctitle("airflow worker -- LocalExecutor: <idle>")
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    os._exit(0)

signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
while True:
    signal.pause()
"""


def test_what_a_component_starts_in_its_last_moment_is_ended_whatever_it_calls_itself(tmp_path: Path) -> None:
    marker, file = "of this test", tmp_path / "pid"
    component = subprocess.Popen(
        [sys.executable, "-c", FORKS_AT_ITS_END, str(file)],
        stdout=subprocess.PIPE,
        env={**os.environ, MARKER_VARIABLE: marker},
        start_new_session=True,
    )
    try:
        assert component.stdout is not None
        assert component.stdout.readline() == b"begun\n"
        started(tmp_path, component.pid, marker)
        with reaped(component):
            assert AirflowLab.clear(tmp_path) == 2
        assert identify(int(file.read_text())) is None
    finally:
        component.kill()
        if file.exists() and (left := identify(int(file.read_text()))) is not None:
            left.stop(kill=True)  # before the output is read to its end, which it has, too
        component.communicate(timeout=180)


@contextlib.contextmanager
def reaped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Meanwhile its end is waited for: the lab's own components are no children of whoever stops them."""
    waits = threading.Thread(target=process.wait)
    waits.start()
    try:
        yield
    finally:
        process.kill()
        waits.join(timeout=180)


def test_a_migration_that_fails_is_named_with_the_end_of_its_log(
    tmp_path: Path, dags: Path, postgres: Postgres
) -> None:
    broken = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nonsense://"}
    with pytest.raises(EosError, match=r"migration of Airflow's database ended") as failure:
        AirflowLab.start(AirflowOptions(tmp_path, dags, postgres, environment=broken))
    assert "nonsense" in str(failure.value)
    assert AirflowLab.clear(tmp_path) == 0


def test_a_component_that_dies_while_it_starts_is_named_at_once_with_the_end_of_its_own_log(
    tmp_path: Path, dags: Path, postgres: Postgres
) -> None:
    # A port that is no number: the triggerer alone reads it.
    broken = {"AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": "none of the ports"}
    with pytest.raises(EosError, match=r"^triggerer ended while it started") as failure:
        AirflowLab.start(AirflowOptions(tmp_path, dags, postgres, environment=broken))
    assert f"The end of {tmp_path / 'triggerer.log'}:" in str(failure.value)
    assert "none of the ports" in str(failure.value)
    assert AirflowLab.clear(tmp_path) == 0
