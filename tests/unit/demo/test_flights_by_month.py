"""The flights as files of months, and the months and lines of an interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from airflow_eos_provider.demo import flights_by_month
from airflow_eos_provider.demo.flights import flight_lines
from airflow_eos_provider.demo.flights_by_month import months_of, time_hour, write_months
from airflow_eos_provider.demo.intervals import dag_file
from airflow_eos_provider.interval.interval import Interval


def test_the_hour_is_read_without_parsing_the_line() -> None:
    line = next(flight_lines())
    assert time_hour(line) == "2013-01-01T10:00:00Z"
    with pytest.raises(ValueError, match="not the line of a flight"):
        time_hour(b'{"line":1}')


def test_months_are_written_line_by_line_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list(islice(flight_lines(), 50))
    moved = [line.replace(b'"time_hour":"2013-01', b'"time_hour":"2013-02') for line in lines[25:]]
    monkeypatch.setattr(flights_by_month, "flight_lines", lambda: iter([*lines[:25], *moved]))
    assert write_months(tmp_path) == 50
    assert (tmp_path / "2013-01.jsonl").read_bytes() == b"".join(lines[:25])
    assert (tmp_path / "2013-02.jsonl").read_bytes() == b"".join(moved)


@pytest.mark.parametrize(
    ("start", "days", "months"),
    [
        (datetime(2013, 1, 1, 5, tzinfo=UTC), 1, ["2013-01"]),
        (datetime(2013, 1, 31, 5, tzinfo=UTC), 1, ["2013-01", "2013-02"]),
        (datetime(2013, 1, 31, 0, tzinfo=UTC), 1, ["2013-01"]),
        (datetime(2012, 12, 31, 5, tzinfo=UTC), 40, ["2012-12", "2013-01", "2013-02"]),
    ],
)
def test_an_interval_has_a_part_in_these_months(start: datetime, days: int, months: list[str]) -> None:
    assert list(months_of(Interval(start, start + timedelta(days=days)))) == months


def test_the_demos_dag_file_is_python(tmp_path: Path) -> None:
    compile(dag_file(tmp_path), "flights_daily.py", "exec")
