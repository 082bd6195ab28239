"""A worker's log on a machine: searched with the real tail, grep and sudo."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.startup_log import StartupLog
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.rollout.hosts.machine.machine import Answer
from airflow_eos_provider.rollout.hosts.machine.sudo import Sudo
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.machine.worker_log import WorkerLog, startup_mode, zone_at
from tests.private_machine import PrivateMachine, private_machine

START = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
STARTED_AT = START.timestamp()


class Printing(ThisMachine):
    """A machine whose ``date`` prints what it likes."""

    def __init__(self, out: bytes) -> None:
        self.out = out

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 8.0) -> Answer:
        return Answer(0, self.out, b"")


def block(seconds: float, mode: str | None, *, more: int = 0) -> str:
    """Settings as ``AbstractConfig.logAll`` prints them."""
    at = START + timedelta(seconds=seconds)
    setting = f"\texactly.once.source.support = {mode}\n" if mode else ""
    return (
        f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] INFO DistributedConfig values: \n"
        f"\tconnect.protocol = sessioned\n{(('y' * 79) + chr(10)) * more}{setting}"
        f"\tgroup.id = g\n (org.apache.kafka.connect.runtime.distributed.DistributedConfig:381)\n"
        f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] INFO ProducerConfig values: \n\tacks = -1\n"
    )


def far(log: Path) -> StartupLog:
    return startup_mode(ThisMachine(), PurePosixPath(log), STARTED_AT, zone=UTC, sudo=False)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (block(2, "enabled"), Mode.ENABLED),
        (block(-300, "disabled") + "noise\n" * 1000 + block(2, "preparing") + "\xff\0noise\n" * 1000, Mode.PREPARING),
        (block(-300, "disabled") + block(-2, None), None),
        (block(2, None) + block(1200, "enabled"), None),
        (block(2, "enabled") + block(3, "disabled"), None),
        (block(2, "sometimes"), None),
        (block(2, "enabled", more=1000), None),  # too far behind its head
        ("", None),
        ("exactly.once.source.support = enabled\n", None),
    ],
)
def test_a_log_is_searched_on_its_machine(tmp_path: Path, text: str, mode: Mode | None) -> None:
    log = tmp_path / "connect.log"
    log.write_text(text, encoding="latin-1")
    assert far(log).mode is mode


def test_a_rotated_log_beside_it_is_searched(tmp_path: Path) -> None:
    log = tmp_path / "connect.log"
    log.write_text("nothing\n")
    for name, text, age in (
        ("connect.log.2026-11-20-12", block(2, "preparing"), 100),
        ("connect.log.2026-11-20-13", "", 200),
        ("connect.log.old", block(2, "enabled"), -100),
        ("connect.log.1.gz", block(2, "enabled"), 300),
        ("other.log.1", block(2, "enabled"), 300),
    ):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (STARTED_AT + age, STARTED_AT + age))
    assert far(log).mode is Mode.PREPARING


def test_a_log_that_is_missing_or_unreadable_proves_nothing(tmp_path: Path) -> None:
    assert "there is no log" in far(tmp_path / "none.log").detail
    assert "cannot be read" in far(tmp_path).detail
    with pytest.raises(ConfigurationError, match="not absolute"):
        WorkerLog(ThisMachine(), PurePosixPath("a.log"), sudo=False)


def test_no_more_than_the_last_gibibyte_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "connect.log"
    log.write_text(block(2, "enabled") + "x" * 5000)
    monkeypatch.setattr("airflow_eos_provider.rollout.hosts.machine.worker_log.LIMIT_BYTES", 5000)
    assert far(log).mode is None
    monkeypatch.setattr("airflow_eos_provider.rollout.hosts.machine.worker_log.LIMIT_BYTES", 6000)
    assert far(log).mode is Mode.ENABLED


def test_the_tail_is_what_was_written_since_without_secrets(tmp_path: Path) -> None:
    log = WorkerLog(ThisMachine(), PurePosixPath(tmp_path / "connect.log"), sudo=False)
    assert log.size() == 0
    assert "cannot be read" in log.tail()
    path = tmp_path / "connect.log"
    path.write_text("before\n" * 10)
    size = log.size()
    assert size == 70
    path.write_text("before\n" * 10 + "one\npassword=hunter2-hunter2\nthe word swordfish\nlast\n")
    shown = log.tail(size, secrets=["swordfish"])
    assert shown.splitlines()[0] == "one"
    assert shown.splitlines()[-1] == "last"
    assert "hunter2" not in shown
    assert "swordfish" not in shown
    path.write_text("".join(f"line {n} {'x' * 90}\n" for n in range(1000)))
    assert log.tail(size, lines=1000).startswith("line ")
    assert log.tail(size, lines=2).splitlines()[-1].startswith("line 999")
    path.write_text("new file\n")
    assert log.tail(size) == "new file"
    assert log.tail(log.size()) == "(nothing)"


def test_the_zone_is_that_of_the_moment() -> None:
    summer, winter = datetime(2026, 7, 1, tzinfo=UTC).timestamp(), datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    machine = ThisMachine()
    assert zone_at(machine, summer, variable="Europe/Berlin") == timezone(timedelta(hours=2))
    assert zone_at(machine, winter, variable="Europe/Berlin") == timezone(timedelta(hours=1))
    assert zone_at(machine, winter, variable="America/St_Johns") == timezone(-timedelta(hours=3, minutes=30))
    assert zone_at(machine, winter) is not None
    assert zone_at(machine, winter, variable="two\nlines") is None


@pytest.mark.parametrize("printed", [b"+9900\n", b"+0060\n", b"*0100\n", b"\n", b"UTC\n"])
def test_what_is_no_zone_is_none(printed: bytes) -> None:
    assert zone_at(Printing(printed), STARTED_AT) is None


class TestSudo:
    @pytest.fixture(scope="class")
    def machine(self) -> Iterator[PrivateMachine]:
        with private_machine() as machine:
            yield machine

    def log(self, machine: PrivateMachine, name: str, owner: str, *, folder_mode: int = 0o755) -> Path:
        folder = machine.folder / name
        folder.mkdir()
        (folder / "connect.log").write_text(block(2, "enabled"))
        machine.owned(folder / "connect.log", owner, 0o600)
        machine.owned(folder, owner, folder_mode)
        return folder / "connect.log"

    @pytest.mark.parametrize("folder_mode", [0o755, 0o700])
    def test_a_log_that_the_login_may_not_read_is_read_through_sudo(
        self, machine: PrivateMachine, folder_mode: int
    ) -> None:
        path = self.log(machine, f"log-{folder_mode}", "kafka", folder_mode=folder_mode)
        log = WorkerLog(machine, PurePosixPath(path), sudo=True)
        machine.grant([])
        assert "password is required" in log.startup(STARTED_AT, zone=UTC).detail
        machine.grant(lines := Sudo(machine).lines(log.commands()))
        assert lines == (
            f"eos ALL=(kafka) NOPASSWD: /usr/bin/tail -c 1073741824 -- {path}",
            f"eos ALL=(kafka) NOPASSWD: /usr/bin/tail -c 16384 -- {path}",
        )
        assert log.startup(STARTED_AT, zone=UTC).mode is Mode.ENABLED
        assert "ProducerConfig" in log.tail()
        assert "Permission denied" in WorkerLog(machine, PurePosixPath(path), sudo=False).tail()

    def test_a_log_that_the_login_may_read_needs_no_lines(self, machine: PrivateMachine) -> None:
        path = self.log(machine, "readable", "kafka")
        machine.owned(path, "kafka", 0o644)
        assert WorkerLog(machine, PurePosixPath(path), sudo=True).commands() == ()
        assert WorkerLog(machine, PurePosixPath(path), sudo=False).commands() == ()

    def test_no_right_is_given_where_another_user_could_put_a_link(self, machine: PrivateMachine) -> None:
        path = self.log(machine, "shared", "root", folder_mode=0o777)
        with pytest.raises(RefusedError, match="everybody may write the folder"):
            WorkerLog(machine, PurePosixPath(path), sudo=True).commands()
