"""The lab's PostgreSQL: whoever starts it, however deep its folder lies, and however it ends, nothing of it is left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from airflow_eos_provider.lab.lab_processes import marker, own_processes, strays
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.postgres import Postgres, unprivileged
from airflow_eos_provider.local_processes import ProcessIdentity, spawn

SECONDS = 600

#: Makes, starts, uses and stops a server in the folder that it is given; prints the server's and its own user.
LIFE = """
import os, sys
from pathlib import Path
import psutil
from airflow_eos_provider.lab.lab_processes import marker, own_process
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.local_processes import spawn
folder = Path(sys.argv[1])
server = Postgres(folder, *free_ports(1), marker=marker(folder, "life"))
server.prepare()
process = spawn(server.start_command, log=server.log, pid_file=server.pid_file, cwd=folder)
try:
    server.wait(process)
    assert own_process(server.pid_file, "life") == process
    print(server.run("SELECT 6 * 7")[0][0], psutil.Process(process.pid).uids().effective, os.geteuid())
finally:
    assert process.stop(grace_seconds=60), "it had to be killed"
"""


@pytest.fixture
def closed_folder(tmp_path: Path) -> Path:
    """A folder that only its owner may enter, with a path longer than a Unix socket's may be."""
    folder = tmp_path.joinpath(*["deep"] * 25)
    folder.mkdir(parents=True)
    tmp_path.chmod(0o700)
    assert len(str(folder)) > 107
    return folder


@pytest.fixture
def server(closed_folder: Path) -> Iterator[tuple[Postgres, ProcessIdentity]]:
    """A server that runs, without clients."""
    server = Postgres(closed_folder, *free_ports(1), marker=marker(closed_folder, "token"))
    server.prepare()
    process = spawn(server.start_command, log=server.log, pid_file=server.pid_file, cwd=closed_folder)
    try:
        server.wait(process)
        yield server, process
    finally:
        process.stop(kill=True)


def life(folder: Path, *before: str) -> list[int]:
    """The answer, the server's effective user and its starter's, as the starter sees them."""
    done = subprocess.run(
        [*before, "-c", LIFE, str(folder)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert processes_in(folder) == []
    return [int(word) for word in done.stdout.split()]


def processes_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process.pid)
    return found


def test_it_serves_from_a_deep_folder_that_nobody_else_may_enter(server: tuple[Postgres, ProcessIdentity]) -> None:
    postgres, _ = server
    postgres.create_database("airflow")
    postgres.run("CREATE TABLE kept (n int)", database="airflow")
    postgres.create_database("airflow")
    assert postgres.run("SELECT count(*) FROM kept", database="airflow") == [(0,)]
    assert postgres.run("SHOW wal_level") == [("logical",)]
    assert postgres.password_file.stat().st_mode & 0o077 == 0


def test_it_takes_nobody_without_the_password(server: tuple[Postgres, ProcessIdentity]) -> None:
    postgres, _ = server
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(host="127.0.0.1", port=postgres.port, user="lab", password="guessed", dbname="postgres")


def test_killed_it_leaves_no_process_and_starts_again_with_its_data(
    server: tuple[Postgres, ProcessIdentity], closed_folder: Path
) -> None:
    postgres, process = server
    assert process in own_processes(closed_folder, "token")
    assert strays(closed_folder, "token", [process]) == []  # its children are not taken for what a killed start left
    postgres.run("CREATE TABLE kept (n int)")
    assert len(processes_in(closed_folder)) > 3
    process.stop(kill=True)
    deadline = time.monotonic() + SECONDS
    while processes_in(closed_folder):  # its children notice the death of their parent
        assert time.monotonic() < deadline
        time.sleep(0.05)
    postgres.prepare()
    again = spawn(postgres.start_command, log=postgres.log, pid_file=postgres.pid_file, cwd=closed_folder)
    try:
        postgres.wait(again)
        assert postgres.run("SELECT count(*) FROM kept") == [(0,)]
    finally:
        again.stop(kill=True)


def test_an_ordinary_user_starts_it_as_itself_and_root_as_another_user(closed_folder: Path) -> None:
    answer, server, starter = life(closed_folder, sys.executable)
    assert answer == 42
    assert server != 0
    answer, server, starter = life(closed_folder / "other", *unprivileged([sys.executable]))
    assert answer == 42
    assert server == starter != 0
