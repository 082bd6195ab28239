"""The flights as files, one a month (UTC), and as a function from an interval to a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_eos_provider.demo.flights import flight_lines

if TYPE_CHECKING:
    from airflow_eos_provider.interval.interval import Interval

#: Hours in the data set are UTC, written like this, so that they can be compared as texts.
_HOUR_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_HOUR_LENGTH = len("2013-01-01T10:00:00Z")


def write_months(folder: Path, *, months: frozenset[str] | None = None) -> int:
    """Write ``<folder>/2013-01.jsonl`` and so on: the lines of :func:`~airflow_eos_provider.demo.flights.flight_lines`.

    :param months: only these, as ``2013-01``.
    :returns: how many flights were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    with ExitStack() as stack:
        files: dict[str, IO[bytes]] = {}
        for line in flight_lines():
            month = time_hour(line)[:7]
            if months is not None and month not in months:
                continue
            if month not in files:
                files[month] = stack.enter_context((folder / f"{month}.jsonl").open("wb"))
            files[month].write(line)
            written += 1
    return written


def time_hour(line: bytes) -> str:
    """The hour of a flight, UTC. It is the last column, and parsing the whole line would take five times as long."""
    _, found, rest = line.rpartition(b'"time_hour":"')
    if not found:
        raise ValueError(f"This is not the line of a flight: {line[:80]!r}")
    return rest[:_HOUR_LENGTH].decode("ascii")


def flights(spark: Any, interval: Interval, folder: str) -> Any:
    """The flights of an interval: the line number as key, the whole line as value.

    :param folder: as :func:`write_months` has filled it.
    :returns: a DataFrame with the columns ``key`` and ``value``.
    """
    hour = "get_json_object(value, '$.time_hour')"
    start, end = (moment.strftime(_HOUR_FORMAT) for moment in (interval.start, interval.end))
    paths = [f"{folder}/{month}.jsonl" for month in months_of(interval)]
    lines = spark.read.text(paths).where(f"{hour} >= '{start}' and {hour} < '{end}'")
    return lines.selectExpr("get_json_object(value, '$.line') as key", "value")


def months_of(interval: Interval) -> Iterator[str]:
    """The months (UTC) that an interval has a part in."""
    day = interval.start.replace(day=1, hour=0, minute=0, second=0)
    while day < interval.end:
        yield f"{day:%Y-%m}"
        day = (day + timedelta(days=32)).replace(day=1)


def hours_between(lines: Iterator[bytes], start: datetime, end: datetime) -> Iterator[tuple[str, bytes]]:
    """The lines whose hour lies between, each with its hour."""
    first, last = (moment.strftime(_HOUR_FORMAT) for moment in (start, end))
    for line in lines:
        hour = time_hour(line)
        if first <= hour < last:
            yield hour, line.rstrip(b"\n")
