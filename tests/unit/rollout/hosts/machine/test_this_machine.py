"""Commands of this machine: what they inherit, how they are detached. For what holds everywhere see test_ssh.py."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from airflow_eos_provider.rollout.hosts.beside_unit import Way
from airflow_eos_provider.rollout.hosts.machine import this_machine
from airflow_eos_provider.rollout.hosts.machine.machine import MachineLostError
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from tests.waiting import until

COMMAND = ("sh", "-c", "echo done")


def test_a_command_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "a-secret-of-airflow")
    assert b"a-secret-of-airflow" not in ThisMachine().run(["env"]).out


def test_a_command_that_may_not_be_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that runs as another user by sudo; the right to end it is taken away here without one."""
    kill = os.killpg

    def denied(group: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", denied)
    pid = tmp_path / "pid"
    with pytest.raises(MachineLostError, match=r"did not end within 0\.5 s"):
        ThisMachine().run(["sh", "-c", 'echo $$ >"$1"; exec sleep 600', "sh", str(pid)], seconds=0.5)
    until(lambda: pid.exists() and pid.read_text().strip(), "its number", seconds=60)
    process = psutil.Process(int(pid.read_text()))
    assert process.status() != psutil.STATUS_ZOMBIE
    kill(process.pid, signal.SIGKILL)
    process.wait(180)


def test_it_is_detached_by_the_first_way_that_is_allowed_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd-run is not to be had where systemd has not booted; programs that do and fail as it does stand in."""
    allowed = (sys.executable, "-c", "import os, sys; print('scope', flush=True); os.execvp(sys.argv[1], sys.argv[1:])")
    denied = (sys.executable, "-c", "import sys; sys.exit('Failed to start transient scope unit: denied')")
    within = Way(COMMAND, "the restart stays within the unit")
    monkeypatch.setattr(this_machine, "ways_here", lambda command: (Way((*allowed, *command)), within))
    answer = ThisMachine().detached(COMMAND)
    assert (answer.out, answer.warning) == (b"scope\ndone\n", "")
    monkeypatch.setattr(this_machine, "ways_here", lambda command: (Way((*denied, *command)), within))
    answer = ThisMachine().detached(COMMAND)
    assert (answer.out, answer.warning) == (b"done\n", "the restart stays within the unit")
