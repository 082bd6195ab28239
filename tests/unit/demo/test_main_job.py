"""What a demo leaves that does not come to its end; its stages run in ``tests/system/test_demo.py``."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.demo import main_job
from airflow_eos_provider.demo.main_job import lab_folder, run_demo, take_down
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab import teardown
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_processes import marker
from airflow_eos_provider.terminal import DataConsole

STAND_IN = "import time; print(flush=True); time.sleep(120)"


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The demo's process ends with the demo, so it leaves its handlers."""
    before = {number: signal.getsignal(number) for number in main_job._INTERRUPTS}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is marked as one of the demo's lab."""
    command = [sys.executable, "-c", STAND_IN, marker(lab_folder(tmp_path), "token")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def ran(folder: Path, *, keep: bool = False) -> str:
    """What a demo printed until it broke off."""
    output = io.StringIO()
    with pytest.raises((EosError, KeyboardInterrupt)):
        run_demo(folder, DataConsole(file=output, width=80), keep=keep, days=1)
    return output.getvalue()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()} - {".demo.lock"}


def test_one_demo_at_a_time_runs_in_a_folder(tmp_path: Path) -> None:
    with main_job._only_demo_in(tmp_path):
        with pytest.raises(EosError, match="is running in"):
            run_demo(tmp_path, DataConsole(), keep=False, days=1)
        with pytest.raises(EosError, match="is running in"):
            take_down(tmp_path)


@pytest.mark.parametrize("keep", [False, True])
def test_ctrl_c_leaves_no_process_and_no_file_and_a_second_one_does_not_stop_the_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jvm: subprocess.Popen[bytes], keep: bool
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def taken_down(lab: Path, *, keep_data: bool) -> None:
        interrupted()
        teardown.take_down(lab, keep_data=keep_data)

    monkeypatch.setattr(main_job, "_run", interrupted)
    monkeypatch.setattr(main_job, "take_down_lab", taken_down)
    assert "Take everything down" in ran(tmp_path, keep=keep)
    assert jvm.poll() is not None
    assert files(tmp_path) == set()


def test_a_demo_says_what_a_killed_one_has_left_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jvm: subprocess.Popen[bytes]
) -> None:
    def failed(*_: object) -> None:
        raise EosError("The disk is full.")

    monkeypatch.setattr(Lab, "up", failed)
    assert "Ended 1 process of an earlier demo in" in " ".join(ran(tmp_path).split())
    assert jvm.poll() is not None
    assert "earlier demo" not in ran(tmp_path)
    assert files(tmp_path) == {"report.json"}


def test_down_ends_a_demo_and_removes_its_files(tmp_path: Path, jvm: subprocess.Popen[bytes]) -> None:
    lab_folder(tmp_path).mkdir(parents=True)
    (lab_folder(tmp_path) / "lab.json").write_text("{")  # of a start that was killed while it wrote
    (tmp_path / "report.json").touch()
    assert take_down(tmp_path) == 1
    assert jvm.poll() is not None
    assert files(tmp_path) == {"report.json"}
    assert take_down(tmp_path / "none") == 0


def test_a_signal_that_was_ignored_before_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hung_up(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        raise EosError("It goes on until its end.")

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    monkeypatch.setattr(main_job, "_run", hung_up)
    ran(tmp_path)
    assert "report.json" in files(tmp_path)
