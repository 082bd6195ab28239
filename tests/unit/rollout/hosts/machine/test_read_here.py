"""What this machine answers without a process is what the command itself prints."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from airflow_eos_provider.rollout.hosts.machine import this_machine
from airflow_eos_provider.rollout.hosts.machine.file_status import FORMAT
from airflow_eos_provider.rollout.hosts.machine.read_here import read_here
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"a\xff\n\n")
    (tmp_path / "empty").touch()
    os.utime(tmp_path / "empty", ns=(1, 1_700_000_000_000_000_009))
    (tmp_path / "odd \udcff").touch(0o4600)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").mkdir(0o1777)
    (tmp_path / "real" / "up").symlink_to("../file")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "--", "{}/file"),
        ("cat", "--", "{}/link/up"),
        ("stat", FORMAT, "--", "{}/file", "{}/empty", "{}/link", "{}/link/up", "{}/real", "{}/odd \udcff", "/", "/tmp"),
        ("stat", "-L", FORMAT, "--", "{}/link", "{}/link/up", "/proc/self/mountinfo"),
        ("readlink", "-v", "-f", "--", "{}/link/up"),
        ("readlink", "-v", "-f", "--", "{}/./real/../odd \udcff"),
        ("test", "-w", "{}/file"),
        ("id", "-un"),
        ("id", "-u"),
        ("id", "-G"),
    ],
)
def test_an_answer_is_that_of_the_command(folder: Path, words: tuple[str, ...]) -> None:
    command = [word.replace("{}", str(folder)) for word in words]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"}, timeout=60, check=True)
    answer = read_here(command)
    if "mountinfo" in words[-1]:  # its inode and its times are of who looks
        assert answer is not None
        answer, done.stdout = answer.splitlines()[0], done.stdout.splitlines()[0]
    assert answer == done.stdout


def test_what_is_free_on_a_file_system_is_what_df_prints(folder: Path) -> None:
    words = ("df", "--output=avail,itotal,iavail,target", "-B1", "--", str(folder))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    free, total, entries, point = done.stdout.splitlines()[-1].split()
    answer = (read_here(words) or b"").decode().splitlines()[-1].split()
    assert (answer[1], answer[3]) == (total, point)
    assert abs(int(answer[0]) - int(free)) < 1 << 30  # others write meanwhile
    assert abs(int(answer[2]) - int(entries)) < 1_000_000


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "--", "{}/nothing"),
        ("cat", "--", "{}"),
        ("stat", FORMAT, "--", "{}/file", "{}/nothing"),
        ("readlink", "-v", "-f", "--", "{}/nothing/at/all"),
        ("test", "-w", "{}/nothing"),
        ("id", "-u", "--", "root"),
        ("stat", "--", "{}/file"),
        ("sha256sum", "--", "{}/file"),
        ("sudo", "-n", "cat", "--", "{}/file"),
    ],
)
def test_what_fails_and_what_does_more_is_left_to_the_command(folder: Path, words: tuple[str, ...]) -> None:
    assert read_here([word.replace("{}", str(folder)) for word in words]) is None


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert read_here(("cat", "--", str(folder / "pipe"))) is None


def test_no_process_is_started_for_an_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine.subprocess, "Popen", None)
    assert ThisMachine().run(("cat", "--", str(folder / "file"))).out == b"a\xff\n\n"
