"""Local processes, as they are just after their start."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_eos_provider.local_processes import from_pid_file, spawn

PROGRAM = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_started_process_is_known_by_its_arguments_at_once(tmp_path: Path) -> None:
    """A lab that looked too early took its own worker for a foreign process and started a second one."""
    for _ in range(100):  # without the wait one in eighty came too early, on two busy cores
        started = spawn(PROGRAM, log=tmp_path / "log", pid_file=tmp_path / "pid")
        found = from_pid_file(tmp_path / "pid")
        arguments = found.command_line() if found else []
        started.stop(kill=True)
        assert arguments == PROGRAM


def test_a_program_that_ends_at_once_is_no_process_any_more(tmp_path: Path) -> None:
    started = spawn(["true"], log=tmp_path / "log", pid_file=tmp_path / "pid")
    started.stop()
    assert from_pid_file(tmp_path / "pid") is None
    assert not started.is_alive()
