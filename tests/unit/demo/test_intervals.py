"""The comparison of the demo's intervals with the data set, day by day."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_eos_provider.demo.intervals import compare_days, dag_file
from airflow_eos_provider.demo.oracle import Comparison, Drained
from airflow_eos_provider.kafka.read.reader import LogRecord

FIRST = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
SECOND = "2013-01-02T05:00:00Z/2013-01-03T05:00:00Z"


def flight(line: int, hour: str) -> bytes:
    return f'{{"line":{line},"time_hour":"{hour}"}}'.encode()


FLIGHTS = [
    flight(1, "2013-01-01T10:00:00Z"),
    flight(2, "2013-01-02T04:00:00Z"),  # still the first of January in New York
    flight(3, "2013-01-02T05:00:00Z"),
    flight(4, "2013-01-03T05:00:00Z"),  # after the second day
]


def compared(values: Iterable[bytes], first: int = 2, second: int = 1) -> tuple[Comparison, list[dict[str, Any]]]:
    drained = Drained("flights.daily")
    drained.add([LogRecord("flights.daily", 0, offset, 1, None, value) for offset, value in enumerate(values)])
    summaries = {FIRST: {"records": first, "tries": 1}, SECOND: {"records": second, "tries": 2}}
    return compare_days(drained, 2, summaries, (line + b"\n" for line in FLIGHTS))


def test_every_flight_once_on_its_day_passes() -> None:
    comparison, days = compared(FLIGHTS[:3])
    assert [(day["interval"], day["records"]) for day in days] == [(FIRST, 2), (SECOND, 1)]
    assert [(day["complete"], day["tries"]) for day in days] == [(True, 1), (True, 2)]
    assert comparison.exactly_once


def test_a_flight_of_no_interval_is_reported() -> None:
    assert not compared(FLIGHTS)[0].nothing_missing


def test_a_complete_record_with_another_count_is_reported() -> None:
    assert [day["complete"] for day in compared(FLIGHTS[:3], first=5)[1]] == [False, True]


def test_the_dag_file_is_python(tmp_path: Path) -> None:
    compile(dag_file(tmp_path), "flights_daily.py", "exec")
