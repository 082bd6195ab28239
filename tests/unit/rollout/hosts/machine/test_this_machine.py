"""Commands of this machine: what they inherit, how they are detached. For what holds everywhere see test_ssh.py."""

from __future__ import annotations

import sys

import pytest

from airflow_eos_provider.rollout.hosts.beside_unit import Way
from airflow_eos_provider.rollout.hosts.machine import this_machine
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine

COMMAND = ("sh", "-c", "echo done")


def test_a_command_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "a-secret-of-airflow")
    assert b"a-secret-of-airflow" not in ThisMachine().run(["env"]).out


def test_it_is_detached_by_the_first_way_that_is_allowed_and_only_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """systemd-run is not to be had where systemd has not booted; programs that do and fail as it does stand in."""
    allowed = (sys.executable, "-c", "import os, sys; print('scope', flush=True); os.execvp(sys.argv[1], sys.argv[1:])")
    denied = (sys.executable, "-c", "import sys; sys.exit('Failed to start transient scope unit: denied')")
    within = Way(COMMAND, "the restart stays within the unit")
    monkeypatch.setattr(this_machine, "ways_here", lambda command: (Way((*allowed, *command)), within))
    assert ThisMachine().detached(COMMAND).out == b"scope\ndone\n"
    assert not caplog.records
    monkeypatch.setattr(this_machine, "ways_here", lambda command: (Way((*denied, *command)), within))
    assert ThisMachine().detached(COMMAND).out == b"done\n"
    assert "stays within the unit" in caplog.text
