from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path

import pytest

from airflow_eos_provider.demo import flights
from airflow_eos_provider.demo.flights import HOUR_FORMAT, JANUARY_COUNT, Feeder, flight_lines, january
from airflow_eos_provider.demo.intervals import DAY, FIRST_DAY
from tests.waiting import until


def test_the_first_flight_has_its_line_number_first_and_then_all_columns_in_their_order() -> None:
    first = next(flight_lines())
    assert first == (
        b'{"line":1,"year":2013,"month":1,"day":1,"dep_time":517,"sched_dep_time":515,"dep_delay":2,"arr_time":830,'
        b'"sched_arr_time":819,"arr_delay":11,"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR",'
        b'"dest":"IAH","air_time":227,"distance":1400,"hour":5,"minute":15,"time_hour":"2013-01-01T10:00:00Z"}\n'
    )


def test_what_the_data_set_does_not_know_is_null() -> None:
    cancelled = json.loads(next(islice(flight_lines(), 839, None)))
    assert cancelled["line"] == 840
    assert cancelled["dep_time"] is None
    assert cancelled["arr_delay"] is None
    assert cancelled["tailnum"] == "N3EHAA"


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """All flights; 3 s."""
    return list(flight_lines())


def test_there_are_336776_flights_and_no_two_are_alike_even_without_their_line_numbers(lines: list[bytes]) -> None:
    assert len(lines) == 336_776
    assert lines[-1].startswith(b'{"line":336776,')
    assert len({line.partition(b",")[2] for line in lines}) == 336_776


def test_the_first_27004_lines_are_new_yorks_january(lines: list[bytes]) -> None:
    first, end = (f"{moment:{HOUR_FORMAT}}" for moment in (FIRST_DAY, FIRST_DAY + 31 * DAY))
    assert list(january()) == [line for line in lines if first <= json.loads(line)["time_hour"] < end]
    assert JANUARY_COUNT == 27_004


def test_the_feeder_keeps_its_rate_and_writes_whole_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "flights.jsonl"
    looks = []
    started = time.monotonic()
    with Feeder(path, rate=2000) as feeder:
        while feeder.written < 1500:
            assert time.monotonic() - started < 300
            looks.append(path.read_bytes())  # may fall into the midst of a write, and end within a line
            time.sleep(0.05)
        took = time.monotonic() - started
        written = feeder.stop()
    assert took > 0.6
    content = path.read_bytes()
    assert content == b"".join(islice(flight_lines(), written))
    assert all(content.startswith(look) for look in looks)


def test_the_feeder_ends_by_itself_after_the_last_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(islice(flight_lines(), 321))
    monkeypatch.setattr(flights, "flight_lines", lambda: iter(few))
    with Feeder(tmp_path / "flights.jsonl", rate=10_000) as feeder:
        until(lambda: not feeder.is_running, "its end", seconds=60)
        assert feeder.stop() == 321
    assert (tmp_path / "flights.jsonl").read_bytes().count(b"\n") == 321


def test_a_failed_write_is_told_when_the_feeder_is_stopped(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "flights.jsonl", rate=10_000)
    feeder.path.unlink()
    feeder.path.mkdir()
    with feeder:
        until(lambda: not feeder.is_running, "its end", seconds=60)
        with pytest.raises(IsADirectoryError, match="Is a directory"):
            feeder.stop()
