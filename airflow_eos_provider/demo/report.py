"""What the demo found, as a file for scripts and as tables."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_eos_provider import __version__
from airflow_eos_provider.demo.connectors import Fencing
from airflow_eos_provider.demo.oracle import Comparison
from airflow_eos_provider.demo.upgrade import Upgrade

WORKERS = 2


@dataclass(slots=True)
class DemoReport:
    """Filled while the demo runs, so that a demo that fails still reports what it has found.

    :param source: topic ``flights`` compared with the input file.
    :param mirror: topic ``src.flights`` compared with topic ``flights``.
    :param killed: the worker that was killed after the upgrade, and the seconds until every task worked again.
    :param load_lasted: whether lines were still being written when the fencing round was over.
    :param intervals: one entry a day: ``interval``, ``records``, ``duplicates``, ``missing``, ``tries``, ``seconds``.
    :param interval_topic: topic ``flights.daily`` compared with the data set.
    :param killed_in_intervals: ``what``, ``pid`` and ``transaction``, the open one of the task that was writing.
    :param failure: why the demo ended early, if it did.
    """

    days: int = 3
    upgrade: Upgrade = field(default_factory=Upgrade)
    source: Comparison | None = None
    mirror: Comparison | None = None
    fencing: Fencing | None = None
    killed: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    load_lasted: bool = False
    airflow: dict[str, Any] = field(default_factory=dict)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    interval_topic: Comparison | None = None
    killed_in_intervals: list[dict[str, Any]] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def promises(self) -> dict[str, bool | None]:
        """Every promise of the demo, and whether it held; None where nothing was seen that shows it."""
        source, mirror, topic, killed = self.source, self.mirror, self.interval_topic, self.killed
        complete = len(self.intervals) == self.days and all(entry["complete"] for entry in self.intervals)
        return {
            "flights: a kill before the upgrade left duplicates": source.duplicates_before > 0 if source else None,
            "every worker was rolled to preparing": self._rolled("preparing"),
            "every worker was rolled to enabled": self._rolled("enabled"),
            "both plans were approved in Airflow": len(self.upgrade.approvals) == 2 if self.upgrade.rolls else None,
            "all tasks ran again after a worker was killed": bool(killed.get("tasks_running_again_seconds")) or None,
            "the reconfigured mirror was fenced": self.fencing.is_real if self.fencing else None,
            "the load lasted until then": self.load_lasted if self.load else None,
            "flights: no records missing": source.nothing_missing if source else None,
            "flights: no duplicates since enabled": self._no_duplicates(source),
            "src.flights: no records missing": mirror.nothing_missing if mirror else None,
            "src.flights: no duplicates since enabled": self._no_duplicates(mirror),
            "every interval is complete": complete if self.intervals else None,
            "flights.daily: no records missing": topic.nothing_missing if topic else None,
            "flights.daily: no duplicates": topic.nothing_double if topic else None,
            "Spark was killed while it wrote": bool(self.killed_in_intervals) if self.intervals else None,
        }

    def _rolled(self, mode: str) -> bool | None:
        workers = next((roll.get("workers", []) for roll in self.upgrade.rolls if roll.get("to") == mode), None)
        return workers and len(workers) == WORKERS and all(worker.get("mode") == mode for worker in workers)

    def _no_duplicates(self, comparison: Comparison | None) -> bool | None:
        """Without the moment at which every worker was enabled, copies prove nothing."""
        return comparison.nothing_double if comparison and self.upgrade.enabled_at_ms is not None else None

    @property
    def checks(self) -> dict[str, bool]:
        """Every promise of the demo, and whether it was seen to hold."""
        return {promise: bool(held) for promise, held in self.promises.items()}

    @property
    def ok(self) -> bool:
        return self.failure is None and all(self.checks.values())

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        rolls = self.upgrade.rolls
        return {
            "ok": self.ok,
            "failure": self.failure,
            "checks": self.checks,
            "upgrade": {
                "from": rolls[0].get("from") if rolls else None,
                "to": rolls[-1].get("to") if rolls else None,
                "workers": [worker for roll in rolls for worker in roll.get("workers", [])],
                "rolls": rolls,
                "approvals": self.upgrade.approvals,
            },
            "source": _topic(self.source),
            "mirror": _topic(self.mirror),
            "killed": self.killed,
            "fencing": [self.fencing.to_dict()] if self.fencing else [],
            "intervals": self.intervals,
            "interval_topic": _topic(self.interval_topic),
            "killed_in_intervals": self.killed_in_intervals,
            "days": self.days,
            "load": self.load,
            "airflow": self.airflow,
            "seconds": round(sum(seconds for _, seconds in self.timings), 1),
            "timings": [{"step": step, "seconds": seconds} for step, seconds in self.timings],
            "versions": {"airflow_eos_provider": __version__, "python": platform.python_version()},
        }

    def write(self, path: Path) -> None:
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)

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
            console.print(_fencing_table(self.fencing))
        topics = [topic for topic in (self.source, self.mirror, self.interval_topic) if topic is not None]
        if topics:
            console.print(_topics_table(topics))
        if self.intervals:
            names = ["records", "missing", "duplicates", "tries"]
            rows = [[entry["interval"][:10], *(entry[name] for name in names)] for entry in self.intervals]
            console.print(_table("Interval runs", ["day", *names], rows))
        words = {True: Text("yes", "green"), False: Text("NO", "bold red"), None: Text("not shown", "yellow")}
        rows = [[promise, words[held]] for promise, held in self.promises.items()]
        console.print(_table("Checks", ["promise", "held"], rows))


def _topic(comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        return {}
    return {**asdict(comparison), "duplicates_before_enabled": comparison.duplicates_before}


def _table(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """The first column has names, the others figures."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return table


def _fencing_table(fencing: Fencing) -> Table:
    def epoch(name: str, found: Mapping[str, Any], otherwise: str) -> str:
        return str(found[name].producer_epoch) if name in found else otherwise

    rows = [
        [name, epoch(name, fencing.before, ""), epoch(name, fencing.fenced, "not seen"), epoch(name, fencing.after, "")]
        for name in sorted(fencing.before)
    ]
    return _table("Fencing: producer epochs", ["transactional id", "before", "fenced", "after"], rows)


def _topics_table(topics: list[Comparison]) -> Table:
    """One column per topic: topics are few, and there are many figures of each."""
    figures: dict[str, Callable[[Comparison], int]] = {
        "expected": lambda one: one.expected,
        "found": lambda one: one.records,
        "missing": lambda one: one.missing,
        "unexpected": lambda one: one.unexpected,
        "duplicates before enabled": lambda one: one.duplicates_before,
        "found since enabled": lambda one: one.records_since,
        "duplicates since enabled": lambda one: one.duplicates,
    }
    rows: list[list[Any]] = [[name, *(f"{figure(one):,}" for one in topics)] for name, figure in figures.items()]
    return _table("Records seen by a read_committed consumer", ["", *(one.topic for one in topics)], rows)
