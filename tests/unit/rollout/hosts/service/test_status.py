"""What supervisors' status commands say, as they were heard of Debian 12's."""

from __future__ import annotations

import pytest

from airflow_eos_provider.rollout.hosts.machine.machine import Answer
from airflow_eos_provider.rollout.hosts.service.commands import Status, status_of

ASK = ("supervisorctl", "status", "connect")


def of(out: str, exit_code: int = 0, *, err: str = "", command: tuple[str, ...] = ASK) -> Status:
    return status_of(Answer(exit_code, out.encode(), err.encode()), command)


@pytest.mark.parametrize(
    "said",
    [
        "4711\n",  # supervisorctl pid, s6-svstat -o pid
        "connect                          RUNNING   pid 4711, uptime 0:00:02\n",
        "run: /etc/service/connect: (pid 4711) 1s\n",
        "run: connect: (pid 4711) 5s; run: log: (pid 4700) 5s\n",
        "run: connect: (pid 4711) 5s, got TERM; run: log: (pid 4700) 5s\n",
        "up (pid 4711) 5 seconds\n",
        "MainPID=4711\n",
        "the worker is up, pid: 4711\n",
    ],
)
def test_a_worker_that_runs_is_known_by_the_pid_that_is_named(said: str) -> None:
    assert of(said).pid == 4711


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        ("0\n", 7),  # supervisorctl pid
        ("0\n", 0),
        ("-1\n", 0),  # s6-svstat -o pid
        ("none\n", 0),
        ("connect                          STOPPED   Nov 23 10:29 PM\n", 3),
        ("connect                          FATAL     Exited too quickly (process log may have details)\n", 3),
        ("connect                          EXITED    Nov 23 10:29 PM\n", 3),
        ("down: /etc/service/connect: 3s, normally up; run: log: (pid 4700) 5s\n", 0),
        ("down (exitcode 0) 3 seconds, ready 3 seconds\n", 0),
        ("MainPID=0\n", 0),
        ("kafka-connect is not running\n", 3),
    ],
)
def test_a_worker_is_stopped_where_that_is_said(said: str, exit_code: int) -> None:
    status = of(said, exit_code)
    assert (status.stopped, status.pid, status.problem) == (True, None, None)


def test_pgrep_says_by_its_exit_code_alone_that_nothing_runs() -> None:
    assert of("", 1, command=("/usr/bin/pgrep", "-f", "connect-distributed")).stopped
    assert not of("", 1, command=("/opt/status.sh",)).stopped
    assert not of("", 2, err="pgrep: bad regex", command=("pgrep", "(")).stopped


@pytest.mark.parametrize(
    ("said", "exit_code", "err", "why"),
    [
        ("unix:///run/supervisor.sock no such file\n", 4, "", "no such file"),
        ("unix:///run/supervisor.sock no such file\n", 7, "", "no such file"),
        ("connect: ERROR (no such process)\n", 4, "", "no such process"),
        ("No such process connect\n", 1, "", "No such process"),
        ("fail: /etc/service/connect: runsv not running\n", 1, "", "runsv not running"),
        ("warning: connect: unable to open supervise/ok: access denied\n", 1, "", "access denied"),
        ("", 1, "sudo: a password is required\n", "a password is required"),
        ("connect                          STARTING  \n", 0, "", "STARTING"),
        ("connect                          BACKOFF   Exited too quickly\n", 3, "", "BACKOFF"),
        ("", 127, "supervisorctl: not found\n", "cannot be run"),
        ("", 126, "sv: Permission denied\n", "cannot be run"),
        ("", 124, "", "did not answer within 10 s"),
        ("", 0, "", "names no pid"),
        ("1" * 5000, 0, "", "names no pid"),
        (f"pid {'1' * 5000}", 0, "", "names no pid"),
        ("w1 RUNNING pid 4711, uptime 1\nw2 RUNNING pid 4712, uptime 1\n", 0, "", "several pids (4711, 4712)"),
    ],
)
def test_what_tells_neither_is_a_problem_and_never_stopped(said: str, exit_code: int, err: str, why: str) -> None:
    status = of(said, exit_code, err=err)
    assert not status.stopped
    assert status.pid is None
    assert why in status.problem


def test_a_secret_in_the_command_is_not_shown() -> None:
    status = of("what?", 5, command=("supervisorctl", "-p", "x", "--password", "canary-secret", "status"))
    assert "canary-secret" not in str(status)
