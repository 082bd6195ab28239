from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.startup_log import SEARCHED, StartupLog, mode_from_searched_logs

START = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
STARTED_AT = START.timestamp()


def line(at: datetime, text: str, *, dated: bool = True) -> str:
    stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] " if dated else ""
    return f"{stamp}INFO {text} (org.apache.kafka.connect.X:1)\n"


def block(at: datetime, mode: str | None, *, dated: bool = True) -> str:
    """Settings as ``AbstractConfig.logAll`` prints them."""
    stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] " if dated else ""
    setting = f"\texactly.once.source.support = {mode}\n" if mode else ""
    return (
        f"{stamp}INFO DistributedConfig values: \n\tconnect.protocol = sessioned\n{setting}"
        "\tgroup.id = g\n (org.apache.kafka.connect.runtime.distributed.DistributedConfig:381)\n"
    )


def read(tmp_path: Path, *parts: str, zone: tzinfo = UTC) -> StartupLog:
    """What the lines prove that are found in a log of these parts."""
    log = tmp_path / "connect.log"
    log.write_text("".join(parts))
    words = [word for pattern in SEARCHED for word in ("-e", pattern)]
    found = subprocess.run(["grep", "-a", "-b", *words, str(log)], capture_output=True, timeout=60, check=False)
    return mode_from_searched_logs(log.name, [(log.name, found.stdout)], STARTED_AT, zone=zone)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_block_after_the_start_tells_the_mode(tmp_path: Path, mode: Mode) -> None:
    found = read(tmp_path, block(START + timedelta(seconds=2), mode))
    assert found.mode is mode
    assert "connect.log" in found.detail


AT = START + timedelta(seconds=2)
OLD = block(START - timedelta(minutes=5), "disabled")
OTHER = f"[{AT:%Y-%m-%d %H:%M:%S},000] INFO OtherConfig values: \n\texactly.once.source.support = enabled\n"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        pytest.param([OLD, line(AT, "quiet")], "before this process started", id="an earlier process"),
        pytest.param([block(START + timedelta(hours=1), "preparing")], "time zone", id="long after the start"),
        pytest.param([block(START, "preparing", dated=False)], "no date", id="without a date"),
        pytest.param([block(AT, "preparing"), block(AT, "disabled")], "several start-ups", id="two workers, one log"),
        pytest.param([block(AT, None), OTHER], "do not name", id="a worker before exactly-once"),
    ],
)
def test_what_proves_no_mode_says_why(tmp_path: Path, parts: list[str], words: str) -> None:
    found = read(tmp_path, *parts)
    assert found.mode is None
    assert words in found.detail


@pytest.mark.parametrize("before", [OLD, block(AT, "preparing")], ids=["an earlier process", "the same"])
def test_other_blocks_do_not_hide_the_one_of_this_start(tmp_path: Path, before: str) -> None:
    assert read(tmp_path, before, block(AT, "preparing")).mode is Mode.PREPARING


@pytest.mark.parametrize(
    "head",
    [
        "2026-11-20T12:00:02.123Z INFO DistributedConfig values: \n",
        "2026-11-20T13:00:02.123456789+0100 INFO DistributedConfig values: \n",
        "2026-11-20 07:00:02.123-05:00 INFO DistributedConfig values: \n",
        '{"@timestamp":"2026-11-20T12:00:02.123Z","message":"DistributedConfig values: \\n\\tx = 1\\n',
    ],
)
def test_dates_of_other_layouts_are_read(tmp_path: Path, head: str) -> None:
    assert read(tmp_path, head, "\texactly.once.source.support = enabled\\n rest\n").mode is Mode.ENABLED


def test_dates_without_zone_are_of_the_workers_own_zone(tmp_path: Path) -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    printed = block(START.astimezone(tokyo) + timedelta(seconds=2), "enabled")
    assert read(tmp_path, printed, zone=tokyo).mode is Mode.ENABLED
    assert read(tmp_path, printed).mode is None


def test_of_a_log_and_the_rotated_ones_no_more_are_taken_than_are_needed() -> None:
    def logs() -> Iterator[tuple[str, bytes]]:
        head = "DistributedConfig values: "
        yield "connect.log", f"0:{line(START - timedelta(hours=1), head)}".encode()
        setting = b"90:\texactly.once.source.support = preparing\n"
        yield "connect.log.2026-11-20-12", f"0:{line(AT, head)}".encode() + setting
        raise AssertionError

    found = mode_from_searched_logs("connect.log", logs(), STARTED_AT, zone=UTC)
    assert (found.mode, "connect.log.2026-11-20-12" in found.detail) == (Mode.PREPARING, True)
