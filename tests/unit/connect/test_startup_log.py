from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from airflow_eos_provider.connect import startup_log
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.startup_log import mode_from_startup_log

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


def read(tmp_path: Path, *parts: str, started_at: float = STARTED_AT) -> startup_log.StartupLog:
    log = tmp_path / "connect.log"
    log.write_text("".join(parts))
    return mode_from_startup_log(log, started_at, zone=UTC)


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
    log = tmp_path / "connect.log"
    log.write_text(block(START.astimezone(ZoneInfo("Asia/Tokyo")) + timedelta(seconds=2), "enabled"))
    assert mode_from_startup_log(log, STARTED_AT, zone=ZoneInfo("Asia/Tokyo")).mode is Mode.ENABLED
    assert mode_from_startup_log(log, STARTED_AT, zone=UTC).mode is None


def test_the_hour_that_comes_twice_is_read_both_ways(tmp_path: Path) -> None:
    zone = ZoneInfo("Europe/Berlin")
    for start in (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)):
        log = tmp_path / "connect.log"
        log.write_text(block(start.astimezone(zone) + timedelta(seconds=2), "enabled"))
        assert mode_from_startup_log(log, start.timestamp(), zone=zone).mode is Mode.ENABLED


def test_a_rotated_log_is_read_if_it_was_written_since_the_start(tmp_path: Path) -> None:
    rotated, older = tmp_path / "connect.log.2026-11-20-12", tmp_path / "connect.log.2026-11-20-11"
    rotated.write_text(block(START + timedelta(seconds=2), "preparing"))
    older.write_text(block(START - timedelta(hours=1), "disabled"))
    os.utime(rotated, (STARTED_AT + 10, STARTED_AT + 10))
    os.utime(older, (STARTED_AT - 3000, STARTED_AT - 3000))
    found = read(tmp_path, line(START + timedelta(hours=1), "later"))
    assert found.mode is Mode.PREPARING
    assert rotated.name in found.detail


@pytest.mark.parametrize("chunk", [64, 100, 1000, 4096])
def test_a_block_on_the_edge_of_two_pieces_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(startup_log, "CHUNK_BYTES", chunk)
    later = "".join(line(START + timedelta(seconds=3 + n), f"line {n}") for n in range(100))
    for shift in range(0, 130, 7):
        found = read(tmp_path, "x" * shift + "\n", block(START + timedelta(seconds=2), "preparing"), later)
        assert found.mode is Mode.PREPARING, shift


def test_a_big_log_is_read_from_its_end_and_no_further_than_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "connect.log"
    with log.open("wb") as stream:
        stream.write(block(START + timedelta(seconds=2), "disabled").encode())  # out of place: must not be reached
        stream.write(b"".join(line(START - timedelta(days=1), "old").encode() for _ in range(3000)))
        stream.seek(3 << 30)  # a hole of 3 GiB
        stream.write(line(START - timedelta(hours=1), "older than the process").encode() * 3000)
        stream.write(line(START + timedelta(seconds=5), "newest").encode())
    monkeypatch.setattr(startup_log, "CHUNK_BYTES", 64 << 10)
    before = os.times()
    assert mode_from_startup_log(log, STARTED_AT, zone=UTC).mode is None
    after = os.times()
    assert after.user + after.system - before.user - before.system < 1.0


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    assert "there is no log" in mode_from_startup_log(tmp_path / "no.log", STARTED_AT).detail
