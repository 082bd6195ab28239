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
from airflow_eos_provider.demo.intervals import IntervalsReport
from airflow_eos_provider.demo.load import Fencing
from airflow_eos_provider.demo.oracle import Comparison
from airflow_eos_provider.demo.parts import Outcome, Part

#: Each roll has to bring this many workers through their gates.
WORKERS = 3


@dataclass(slots=True)
class DemoReport:
    """Filled while the demo goes on, so that a demo that breaks off still reports how far it came.

    :param rolls: the reports of the rolls to preparing and to enabled, as the tasks in Airflow returned them.
    :param source: topic ``flights`` beside the input file.
    :param mirror: topic ``src.flights`` beside topic ``flights``.
    :param killed: which worker was killed, and how long until every task ran again.
    :param offsets: how many of the mirror's offsets were moved, removed and put back, and the topic of its own.
    :param secure: whether the lab was a secured one.
    :param refused_for_rights: whether the roll was refused while rights were missing, and only then.
    :param load_lasted: whether lines were still being written when the fencing round was over.
    :param intervals: the backfill; its ``days`` is 0 if it was left out.
    :param parts: what became of each part that has had its turn.
    :param failure: why the demo broke off, if it did; a part that fails does not break it off.
    :param interrupted: whether it was broken off by a signal.
    """

    rolls: list[dict[str, Any]] = field(default_factory=list)
    source: Comparison | None = None
    mirror: Comparison | None = None
    fencing: Fencing | None = None
    killed: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, Any] = field(default_factory=dict)
    approvals: tuple[str, ...] = ()
    load: dict[str, Any] = field(default_factory=dict)
    load_lasted: bool = False
    airflow: dict[str, Any] = field(default_factory=dict)
    intervals: IntervalsReport = field(default_factory=IntervalsReport)
    rebalance_delay_ms: int = 0
    secure: bool = False
    refused_for_rights: bool | None = None
    timings: list[tuple[str, float]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    failure: str | None = None
    interrupted: bool = False

    @property
    def enabled_at_ms(self) -> int | None:
        """When every worker was proven enabled, broker time; None if they never were."""
        rolled = [roll for roll in self.rolls if roll.get("to") == "enabled"]
        return int(rolled[-1]["finished_at_ms"]) if rolled else None

    @property
    def promises(self) -> dict[str, bool | None]:
        """Every promise of the demo, and whether it held; None where nothing was seen that shows it."""
        rolled = {str(roll.get("to")): roll for roll in self.rolls}
        return {
            **({"the roll was refused until its rights were there": self.refused_for_rights} if self.secure else {}),
            "every worker was rolled to preparing": _all_in(rolled, "preparing"),
            "every worker was rolled to enabled": _all_in(rolled, "enabled"),
            "both plans were approved in Airflow": len(self.approvals) == 2 if self.approvals else None,
            "all tasks ran again after a worker was killed": bool(self.killed.get("tasks_running_again_seconds"))
            or None,
            "the reconfigured mirror was fenced": self.fencing.is_real if self.fencing else None,
            "the mirror's offsets were moved, removed and put back": bool(
                self.offsets.get("removed") and self.offsets["removed"] == self.offsets["put_back"]
            )
            if self.offsets
            else None,
            "the load lasted until then": self.load_lasted if self.load else None,
            "flights: nothing is missing": self.source.nothing_missing if self.source else None,
            "flights: nothing is double since enabled": self._nothing_double(self.source),
            "src.flights: nothing is missing": self.mirror.nothing_missing if self.mirror else None,
            "src.flights: nothing is double since enabled": self._nothing_double(self.mirror),
            **self.intervals.promises(),
        }

    def _nothing_double(self, comparison: Comparison | None) -> bool | None:
        """Without the moment at which every worker was enabled, copies say nothing."""
        return comparison.nothing_double if comparison is not None and self.enabled_at_ms is not None else None

    @property
    def checks(self) -> dict[str, bool]:
        """Every promise of the demo, and whether it was seen to hold."""
        return {promise: bool(held) for promise, held in self.promises.items()}

    @property
    def ok(self) -> bool:
        return (
            self.failure is None
            and all(part.outcome is Outcome.DONE for part in self.parts)
            and all(self.checks.values())
        )

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        return {
            "ok": self.ok,
            "failure": self.failure or next((part.reason for part in self.parts if part.reason), None),
            "checks": self.checks,
            "parts": [part.to_dict() for part in self.parts],
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
            "offsets": self.offsets,
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
        if any(part.outcome is not Outcome.DONE for part in self.parts):
            console.print(_parts_table(self.parts))
        console.print(_checks_table(self.promises))

    def _workers_table(self) -> Table:
        table = Table(title="The upgrade, worker by worker", title_justify="left")
        for column in ("to", "worker", "seconds", "task downtime, seconds", "mode now proven"):
            table.add_column(column, justify="right" if "seconds" in column else "left")
        for roll in self.rolls:
            for worker in roll.get("workers", []):
                table.add_row(
                    str(roll.get("to")),
                    str(worker["worker"]),
                    f"{worker['seconds']:.1f}",
                    f"{worker['task_downtime_seconds']:.1f}",
                    str(worker["mode"]),
                )
        return table


def _all_in(rolled: Mapping[str, Mapping[str, Any]], mode: str) -> bool | None:
    if mode not in rolled:
        return None
    workers = rolled[mode].get("workers", [])
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
    """One column per topic: topics are few, and there are many figures of each."""
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


def _parts_table(parts: list[Part]) -> Table:
    table = Table(title="What was done, and what was not", title_justify="left", show_lines=True)
    for column in ("part", "outcome", "seconds", "reason"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    styles = {Outcome.DONE: "green", Outcome.FAILED: "bold red", Outcome.NOT_TRIED: "yellow"}
    for part in parts:
        first_line = (part.reason or "").partition("\n")[0]  # the rest, such as the end of a log, is printed above
        outcome = Text(part.outcome, style=styles[part.outcome])
        table.add_row(part.name, outcome, f"{part.seconds:.1f}", Text(first_line))
    return table


def _checks_table(promises: Mapping[str, bool | None]) -> Table:
    verdicts = {
        True: Text("yes", style="green"),
        False: Text("NO", style="bold red"),
        None: Text("not shown", style="yellow"),
    }
    table = Table(title="What had to hold", title_justify="left")
    table.add_column("promise")
    table.add_column("held")
    for promise, held in promises.items():
        table.add_row(promise, verdicts[held])
    return table
