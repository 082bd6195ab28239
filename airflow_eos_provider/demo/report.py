"""What the demo shows: its stages, and what it found, as a file for scripts and as tables."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from airflow_eos_provider.demo.connectors import Fencing
from airflow_eos_provider.demo.oracle import Comparison
from airflow_eos_provider.demo.upgrade import Upgrade

WORKERS = 2

#: Rows of the table of topics: name -> field of a comparison.
_FIGURES = {
    "expected": "expected",
    "found": "records",
    "missing": "missing",
    "unexpected": "unexpected",
    "duplicates before enabled": "duplicates_before_enabled",
    "found since enabled": "records_since",
    "duplicates since enabled": "duplicates",
}


class Screen:
    """Prints a line when a stage begins; a terminal also shows that the stage is running."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running = console.status("")
        self._started = time.monotonic()
        self._stages: list[tuple[str, float]] = []

    def __enter__(self) -> Screen:
        self._running.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.stop()

    def stage(self, title: str) -> None:
        """A new stage begins; the line has the seconds since the start."""
        elapsed = time.monotonic() - self._started
        self._stages.append((title, elapsed))
        self._running.update(Text(title))
        self._console.print(Text(f"{elapsed:4.0f} s  ", style="dim") + Text(title, style="bold"))

    def say(self, line: str) -> None:
        """A remark below the stage's line."""
        self._console.print(Padding(Text(line, style="yellow"), (0, 0, 0, 8), expand=False))

    def timings(self) -> list[tuple[str, float]]:
        """The stages so far, each with its seconds."""
        ends = [start for _, start in self._stages[1:]] + [time.monotonic() - self._started]
        return [(title, round(end - start, 1)) for (title, start), end in zip(self._stages, ends, strict=True)]


@dataclass(slots=True)
class DemoReport:
    """Filled while the demo runs, so that a demo that fails still reports what it has found.

    :param source: topic ``flights`` compared with the input file.
    :param mirror: topic ``src.flights`` compared with topic ``flights``.
    :param load: ``lines`` written, their ``rate``, and whether it ``lasted`` until the fencing round was over.
    :param interval_topic: topic ``flights.daily`` compared with the data set.
    """

    days: int = 3
    upgrade: Upgrade = field(default_factory=Upgrade)
    source: Comparison | None = None
    mirror: Comparison | None = None
    fencing: Fencing | None = None
    killed: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    airflow: dict[str, Any] = field(default_factory=dict)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    interval_topic: Comparison | None = None
    killed_in_intervals: list[dict[str, Any]] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def checks(self) -> dict[str, bool]:
        """By promise of the demo, whether it was kept."""
        source, mirror, topic, fencing = self.source, self.mirror, self.interval_topic, self.fencing
        is_enabled = self.upgrade.enabled_at_ms is not None  # without that moment copies prove nothing
        complete = [entry["complete"] for entry in self.intervals]
        return {
            "flights: a kill before the upgrade left duplicates": bool(source and source.duplicates_before_enabled),
            "every worker was rolled to preparing": self._rolled("preparing"),
            "every worker was rolled to enabled": self._rolled("enabled"),
            "both plans were approved in Airflow": len(self.upgrade.approvals) == 2,
            "all tasks ran again after a worker was killed": "tasks_running_again_seconds" in self.killed,
            "the reconfigured mirror was fenced": bool(fencing and fencing.is_real),
            "the load lasted until then": bool(self.load.get("lasted")),
            "flights: no records missing": bool(source and source.nothing_missing),
            "flights: no duplicates since enabled": bool(is_enabled and source and source.nothing_double),
            "src.flights: no records missing": bool(mirror and mirror.nothing_missing),
            "src.flights: no duplicates since enabled": bool(is_enabled and mirror and mirror.nothing_double),
            "every interval is complete": len(complete) == self.days and all(complete),
            "flights.daily: no records missing": bool(topic and topic.nothing_missing),
            "flights.daily: no duplicates": bool(topic and topic.nothing_double),
            "Spark was killed while it wrote": bool(self.killed_in_intervals),
        }

    def _rolled(self, mode: str) -> bool:
        workers = [worker for roll in self.upgrade.rolls if roll.get("to") == mode for worker in roll["workers"]]
        return len(workers) == WORKERS and all(worker.get("mode") == mode for worker in workers)

    @property
    def ok(self) -> bool:
        return self.failure is None and all(self.checks.values())

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        return {**asdict(self), "ok": self.ok, "checks": self.checks}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def show(self, console: Console) -> None:
        """Print the tables."""
        for roll in self.upgrade.rolls:
            rows = [
                [worker["worker"], f"{worker['seconds']:.1f}", f"{worker['task_downtime_seconds']:.1f}", worker["mode"]]
                for worker in roll.get("workers", [])
            ]
            columns = ["worker", "seconds", "task downtime (s)", "proven mode"]
            console.print(_table(f"Roll to {roll.get('to')}", columns, rows))
        if self.fencing is not None:
            rows = [[name, *epochs] for name, epochs in zip(self.fencing.ids, self.fencing.epochs, strict=True)]
            console.print(_table("Fencing: producer epochs", ["transactional id", "before", "after"], rows))
        topics = [topic for topic in (self.source, self.mirror, self.interval_topic) if topic is not None]
        if topics:
            rows = [[name, *(f"{getattr(one, figure):,}" for one in topics)] for name, figure in _FIGURES.items()]
            columns = ["", *(one.topic for one in topics)]
            console.print(_table("Records seen by a read_committed consumer", columns, rows))
        if self.intervals:
            names = ["records", "tries"]
            rows = [[entry["interval"][:10], *(entry[name] for name in names)] for entry in self.intervals]
            console.print(_table("Interval runs", ["day", *names], rows))
        words = {True: Text("yes", "green"), False: Text("NO", "bold red")}
        rows = [[promise, words[kept]] for promise, kept in self.checks.items()]
        console.print(_table("Checks", ["promise", "held"], rows))


def _table(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """The first column has names, the others figures."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return table
