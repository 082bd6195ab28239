"""What the demo found, as a file for scripts and as a table for people."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_eos_provider import __version__
from airflow_eos_provider.lab.demo_intervals import IntervalsReport
from airflow_eos_provider.lab.demo_load import Fencing
from airflow_eos_provider.lab.drain import Comparison

#: Each roll has to bring this many workers through their gates.
WORKERS = 3


@dataclass(slots=True)
class DemoReport:
    """Filled while the demo goes on, so that a demo that breaks off still tells how far it came.

    :param rolls: the reports of the rolls to preparing and to enabled, as the tasks in Airflow returned them.
    :param source: topic ``flights`` beside the input file.
    :param mirror: topic ``src.flights`` beside topic ``flights``.
    :param killed: which worker was killed, and how long until every task ran again.
    :param load_lasted: whether lines were still being written when the fencing round was over.
    :param intervals: the backfill; its ``days`` is 0 if it was left out.
    :param failure: why the demo broke off, if it did.
    :param interrupted: whether somebody broke it off.
    """

    rolls: list[dict[str, Any]] = field(default_factory=list)
    source: Comparison | None = None
    mirror: Comparison | None = None
    fencing: Fencing | None = None
    killed: dict[str, Any] = field(default_factory=dict)
    approvals: tuple[str, ...] = ()
    load: dict[str, Any] = field(default_factory=dict)
    load_lasted: bool = False
    airflow: dict[str, Any] = field(default_factory=dict)
    intervals: IntervalsReport = field(default_factory=IntervalsReport)
    rebalance_delay_ms: int = 0
    timings: list[tuple[str, float]] = field(default_factory=list)
    failure: str | None = None
    interrupted: bool = False

    @property
    def checks(self) -> dict[str, bool]:
        """Every promise of the demo, and whether it held."""
        rolled = {roll.get("to"): roll for roll in self.rolls}
        return {
            "every worker was rolled to preparing": _all_in(rolled.get("preparing"), "preparing"),
            "every worker was rolled to enabled": _all_in(rolled.get("enabled"), "enabled"),
            "both plans were approved in Airflow": len(self.approvals) == 2,
            "all tasks ran again after a worker was killed": bool(self.killed.get("tasks_running_again_seconds")),
            "the reconfigured mirror was fenced": self.fencing is not None and self.fencing.is_real,
            "the load lasted until then": self.load_lasted,
            "flights: nothing is missing": self.source is not None and self.source.nothing_missing,
            "flights: nothing is double since enabled": self.source is not None and self.source.nothing_double,
            "src.flights: nothing is missing": self.mirror is not None and self.mirror.nothing_missing,
            "src.flights: nothing is double since enabled": self.mirror is not None and self.mirror.nothing_double,
            **self.intervals.checks(),
        }

    @property
    def ok(self) -> bool:
        return self.failure is None and all(self.checks.values())

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        return {
            "ok": self.ok,
            "failure": self.failure,
            "checks": self.checks,
            "upgrade": {
                "from": self.rolls[0].get("from") if self.rolls else None,
                "to": self.rolls[-1].get("to") if self.rolls else None,
                "workers": [worker for roll in self.rolls for worker in roll.get("workers", [])],
                "rolls": self.rolls,
                "approvals": list(self.approvals),
            },
            "source": _topic(self.source),
            "mirror": _topic(self.mirror),
            "killed": self.killed,
            "fencing": [self.fencing.to_dict()] if self.fencing else [],
            "intervals": self.intervals.intervals,
            "interval_topic": _topic(self.intervals.comparison),
            "killed_in_intervals": self.intervals.killed,
            "days": self.intervals.days,
            "load": self.load,
            "airflow": self.airflow,
            "rebalance_delay_ms": self.rebalance_delay_ms,
            "seconds": round(sum(seconds for _, seconds in self.timings), 1),
            "timings": [{"step": step, "seconds": seconds} for step, seconds in self.timings],
            "versions": {"airflow_eos_provider": __version__, "python": platform.python_version()},
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)

    def show(self, console: Console) -> None:
        """The tables at the end."""
        if self.rolls:
            console.print(self._workers_table())
        if self.fencing is not None:
            console.print(_fencing_table(self.fencing))
        if self.source is not None:
            topics = (self.source, self.mirror, self.intervals.comparison)
            console.print(_topics_table([c for c in topics if c is not None]))
        if self.intervals.intervals:
            console.print(_intervals_table(self.intervals))
        console.print(_timings_table(self.timings))
        console.print(_checks_table(self.checks))

    def _workers_table(self) -> Table:
        table = Table(title="The upgrade, worker by worker", title_justify="left")
        for column in ("to", "worker", "seconds", "its tasks stood, seconds", "mode now proven"):
            table.add_column(column, justify="right" if "seconds" in column else "left")
        for roll in self.rolls:
            for worker in roll.get("workers", []):
                table.add_row(
                    str(roll.get("to")),
                    str(worker["worker"]),
                    f"{worker['seconds']:.1f}",
                    f"{worker['tasks_stood_seconds']:.1f}",
                    str(worker["mode"]),
                )
        return table


def _all_in(roll: Mapping[str, Any] | None, mode: str) -> bool:
    workers = roll.get("workers", []) if roll else []
    return len(workers) == WORKERS and all(worker.get("mode") == mode for worker in workers)


def _topic(comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        return {}
    return {**asdict(comparison), "duplicates_before_enabled": comparison.duplicates_before}


def _fencing_table(fencing: Fencing) -> Table:
    before, after = fencing.count_before, fencing.count_after
    table = Table(
        title=f"Fencing round of {fencing.connector}: task count record {before.count} (offset {before.offset}) "
        f"→ {after.count} (offset {after.offset})",
        title_justify="left",
    )
    for column in ("transactional id", "producer id", "epoch before", "seen fenced at epoch", "epoch after"):
        table.add_column(column)
    for name in sorted(fencing.before):
        now = fencing.after.get(name)
        table.add_row(
            name,
            str(fencing.before[name].producer_id),
            str(fencing.before[name].producer_epoch),
            _fenced_cell(fencing, name),
            "gone" if now is None else str(now.producer_epoch),
        )
    return table


def _fenced_cell(fencing: Fencing, name: str) -> str:
    seen = fencing.fenced.get(name)
    if seen is None:
        return "the new task was quicker"
    return f"{seen.producer_epoch} (timeout {fencing.before[name].timeout_ms} → {seen.timeout_ms} ms)"


def _topics_table(comparisons: list[Comparison]) -> Table:
    """One column per topic: topics are few, and what is told of each is much."""
    table = Table(title="What readers of committed records get", title_justify="left")
    table.add_column("")
    for comparison in comparisons:
        table.add_column(comparison.topic, justify="right")
    rows: list[tuple[str, list[str]]] = [
        ("compared with", [c.against for c in comparisons]),
        ("records expected", [f"{c.expected:,}" for c in comparisons]),
        ("records found", [f"{c.records:,}" for c in comparisons]),
        ("missing", [f"{c.missing:,}" for c in comparisons]),
        ("unexpected", [f"{c.unexpected:,}" for c in comparisons]),
        ("double, appended before every worker was enabled", [f"{c.duplicates_before:,}" for c in comparisons]),
        ("appended since", [f"{c.records_since:,}" for c in comparisons]),
        ("double since", [f"{c.duplicates:,}" for c in comparisons]),
    ]
    for name, values in rows:
        table.add_row(name, *values)
    return table


def _intervals_table(report: IntervalsReport) -> Table:
    killed = ", ".join(entry["what"] for entry in report.killed) or "nothing"
    table = Table(title=f"The intervals (killed on the way: {killed})", title_justify="left")
    table.add_column("interval")
    for column in ("records", "missing", "double", "tries", "seconds"):
        table.add_column(column, justify="right")
    for entry in report.intervals:
        table.add_row(
            entry["interval"],
            f"{entry['records']:,}",
            str(entry["missing"]),
            str(entry["duplicates"]),
            str(entry["tries"]),
            "-" if entry["seconds"] is None else f"{entry['seconds']:.1f}",
        )
    return table


def _timings_table(timings: list[tuple[str, float]]) -> Table:
    table = Table(title="Where the time went", title_justify="left")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for step, seconds in timings:
        table.add_row(step, f"{seconds:.1f}")
    table.add_row(Text("all", style="bold"), f"{sum(seconds for _, seconds in timings):.1f}")
    return table


def _checks_table(checks: Mapping[str, bool]) -> Table:
    table = Table(title="What had to hold", title_justify="left")
    table.add_column("promise")
    table.add_column("held")
    for promise, held in checks.items():
        table.add_row(promise, Text("yes", style="green") if held else Text("NO", style="bold red"))
    return table
