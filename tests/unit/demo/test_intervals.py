"""What the demo says of its intervals: day by day, and whether it held."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_eos_provider.demo import intervals as demo_intervals
from airflow_eos_provider.demo.intervals import IntervalsReport, compare_days
from airflow_eos_provider.demo.oracle import Drained
from airflow_eos_provider.kafka.read.reader import LogRecord

FIRST = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
SECOND = "2013-01-02T05:00:00Z/2013-01-03T05:00:00Z"


def flight(line: int, hour: str) -> bytes:
    return f'{{"line":{line},"time_hour":"{hour}"}}'.encode()


FLIGHTS = [
    flight(1, "2013-01-01T10:00:00Z"),
    flight(2, "2013-01-02T04:00:00Z"),  # still the first of January in New York
    flight(3, "2013-01-02T05:00:00Z"),
    flight(4, "2013-01-03T05:00:00Z"),  # behind the second day
]


@pytest.fixture(autouse=True)
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_intervals, "flight_lines", lambda: (line + b"\n" for line in FLIGHTS))


def drained(values: Iterable[bytes]) -> Drained:
    found = Drained("flights.daily")
    found.add([LogRecord("flights.daily", 0, offset, 1, None, value) for offset, value in enumerate(values)])
    return found


def summaries(first: int, second: int) -> dict[str, dict[str, int]]:
    return {FIRST: {"records": first, "tries": 1}, SECOND: {"records": second, "tries": 2}}


def report(values: Iterable[bytes], first: int = 2, second: int = 1) -> IntervalsReport:
    comparison, intervals = compare_days(drained(values), 2, summaries(first, second))
    killed = [{"what": "worker"}, {"what": "server"}]
    return IntervalsReport(days=2, intervals=intervals, comparison=comparison, killed=killed)


def test_every_flight_once_on_its_day_is_what_has_to_be() -> None:
    found = report(FLIGHTS[:3])
    assert [(day["interval"], day["records"], day["duplicates"], day["missing"]) for day in found.intervals] == [
        (FIRST, 2, 0, 0),
        (SECOND, 1, 0, 0),
    ]
    assert found.intervals[1]["tries"] == 2
    assert all(found.promises().values())


def test_a_missing_flight_is_told_with_its_day() -> None:
    found = report([FLIGHTS[0], FLIGHTS[2]])
    assert [day["missing"] for day in found.intervals] == [1, 0]
    assert found.promises()["flights.daily: nothing is missing"] is False


def test_a_double_flight_is_told_with_its_day() -> None:
    found = report([*FLIGHTS[:3], FLIGHTS[2]])
    assert [day["duplicates"] for day in found.intervals] == [0, 1]
    assert found.promises()["flights.daily: nothing is double"] is False


def test_a_flight_of_no_interval_is_noticed() -> None:
    assert report(FLIGHTS).promises()["flights.daily: nothing is missing"] is False


def test_a_complete_that_says_something_else_is_noticed() -> None:
    assert report(FLIGHTS[:3], first=5).promises()["every interval is complete"] is False


def test_a_demo_that_killed_nothing_proved_less_than_it_promised() -> None:
    found = report(FLIGHTS[:3])
    found.killed = [{"what": "worker"}]
    assert found.promises()["the Spark Connect server and a Python worker were killed on the way"] is False


def test_of_few_days_the_server_is_killed_first_since_the_next_tries_have_a_worker_to_kill() -> None:
    assert list(demo_intervals._killed_after(1).items()) == [("server", 0), ("worker", 0)]
    assert list(demo_intervals._killed_after(31).items()) == [("worker", 7), ("server", 15)]


def test_without_days_nothing_is_promised() -> None:
    assert IntervalsReport(days=0).promises() == {}
