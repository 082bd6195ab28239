from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from airflow_eos_provider.demo import flights
from airflow_eos_provider.demo.flights import HOUR_FORMAT, JANUARY_COUNT, feed, flight_lines, january
from airflow_eos_provider.demo.intervals import DAY, FIRST_DAY


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


def test_the_rate_is_kept_and_whole_lines_are_written_in_order(tmp_path: Path) -> None:
    path, stop = tmp_path / "flights.jsonl", threading.Event()
    looks = [b""]
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(feed, path, 2000, stop)
        while looks[-1].count(b"\n") < 1500:
            assert time.monotonic() - started < 300
            time.sleep(0.05)
            looks.append(path.read_bytes())  # may fall into the midst of a write, and end within a line
        took = time.monotonic() - started
        stop.set()
    assert took > 0.6
    content = path.read_bytes()
    assert content == b"".join(islice(flight_lines(), written.result()))
    assert all(content.startswith(look) for look in looks)


def test_it_ends_by_itself_after_the_last_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(islice(flight_lines(), 321))
    monkeypatch.setattr(flights, "flight_lines", lambda: iter(few))
    assert feed(tmp_path / "flights.jsonl", 10_000, threading.Event()) == 321
    assert (tmp_path / "flights.jsonl").read_bytes().count(b"\n") == 321
