"""A calendar of a pipeline's intervals: complete, running, failed, missing, or never due.

Computed from the ledger, Airflow's runs and the intervals of the schedule. Each list is read once, so
ten thousand intervals cost a fraction of a second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, islice, pairwise
from statistics import median, quantiles
from typing import Any

from airflow_eos_provider.interval.interval import Interval, Run, Wholes
from airflow_eos_provider.interval.verify import RunStatus

#: The intervals of a schedule between two moments.
Schedule = Callable[[datetime, datetime], Iterable[Interval]]

#: By interval its runs; none where only a DAG run is known.
_Known = Mapping[Interval, Sequence[RunStatus]]

#: No more intervals than this are named missing.
MOST_MISSING = 20_000

_DAY = 86_400
_HOUR = 3_600

#: What Airflow calls a run that is not over.
_UNDER_WAY = ("queued", "running")

#: Two machines' clocks may differ by so much, seconds.
_CLOCKS_DIFFER = 10.0


@dataclass(frozen=True, slots=True)
class DagRunSeen:
    """A DAG run of an interval."""

    dag_id: str
    run_id: str
    state: str
    link: str
    ended_at: float | None = None

    def to_dict(self) -> dict[str, str]:
        return {"dag_id": self.dag_id, "run_id": self.run_id, "state": self.state, "link": self.link}


@dataclass(frozen=True, slots=True)
class Calendar:
    """The intervals of one pipeline.

    :param statuses: every run on record, in the order of their intervals.
    :param seconds: by run how long it took, where that is known.
    :param dag_runs: by interval the newest DAG run.
    :param due: what ends after this is not due yet; None for the end of the last interval that is known.
    :param schedule: the intervals that a schedule has between two moments; None if no schedule is known.
    :param looked_at: when the look at what is on record began, seconds since the epoch; None if that is not known.
    """

    statuses: Sequence[RunStatus]
    seconds: Mapping[Run, float]
    dag_runs: Mapping[Interval, DagRunSeen]
    due: datetime | None = None
    schedule: Schedule | None = None
    looked_at: float | None = None

    def _cells(
        self, known: _Known, wider: Set[Interval], start: datetime | None, end: datetime | None
    ) -> list[dict[str, Any]]:
        last = max((interval.end for interval in known), default=None)
        complete = Wholes(status.run for status in self.statuses if status.complete and status.ended)
        begun = Wholes(status.run for status in self.statuses if not status.complete)
        cells = []
        for interval in self._filled(known, wider, end):
            if (start is None or interval.start >= start) and (end is None or interval.end <= end):
                runs, is_last = known.get(interval, ()), last is None or interval.start >= last
                whole = None if runs else complete.around(interval) or begun.around(interval)
                cell = self._cell(interval, runs, is_last=is_last)
                cells.append(cell if whole is None else {**cell, **self._as_part(whole, known[whole.interval])})
        return cells

    def _wider_cells(
        self, known: _Known, wider: Set[Interval], start: datetime | None, end: datetime | None
    ) -> list[dict[str, Any]]:
        return [
            self._cell(interval, known[interval], is_last=False)
            for interval in sorted(wider)
            if (start is None or interval.end > start) and (end is None or interval.start < end)
        ]

    def document(self, start: datetime | None = None, end: datetime | None = None) -> dict[str, Any]:
        """The calendar as JSON: a cell for each interval, and for each that was written instead of several others.

        Cells outside of the limits are left out; what a schedule has up to the end is added.
        """
        known = self._known()
        wider = self._wider(known)
        cells = self._cells(known, wider, start, end)
        step = usual_step(sorted({*known} - wider or [Interval.parse(cell["interval"]) for cell in cells]))
        counts = Counter(cell["state"] for cell in cells)
        names = ("complete", "running", "failed", "missing", "revised", "never_due")
        return {
            "schedule_known": self.schedule is not None,
            "step_seconds": step,
            "unit": {_DAY: "day", _HOUR: "hour"}.get(step or 0, "other"),
            "counts": {name: counts[name] for name in names},
            "cells": cells,
            "wider": self._wider_cells(known, wider, start, end),
            "durations": durations([cell["seconds"] for cell in cells if cell["seconds"] is not None]),
        }

    def _known(self) -> _Known:
        found = {
            interval: tuple(runs) for interval, runs in groupby(self.statuses, key=lambda status: status.run.interval)
        }
        return {**dict.fromkeys(self.dag_runs, ()), **found}

    def _wider(self, known: Collection[Interval]) -> set[Interval]:
        """Those of the known intervals within which there are several others: of the schedule; without one, known."""
        if not known:
            return set()
        ordered = sorted(known)
        starts = [each.start for each in ordered]
        widths = [each.end - each.start for each in ordered]
        if self.schedule is not None:
            # No further than this: an interval of the schedule costs up to a millisecond.
            scheduled = self.schedule(ordered[0].start, ordered[0].start + max(widths))
            widths += [each.end - each.start for each in islice(scheduled, 1)]
        narrowest = min(widths)
        found = set()
        for interval in ordered:
            if interval.end - interval.start < 2 * narrowest:
                continue  # the schedule is not asked about months that differ a little
            if self.schedule is not None:
                others = self.schedule(interval.start, interval.end)
            else:
                others = ordered[bisect_left(starts, interval.start) : bisect_left(starts, interval.end)]
            within = (each for each in others if each != interval and interval.contains(each))
            if len(list(islice(within, 2))) > 1:
                found.add(interval)
        return found

    def _filled(self, known: Collection[Interval], wider: Set[Interval], end: datetime | None) -> Iterator[Interval]:
        """The known intervals with those before, between and after them, but for the wider ones."""
        if not known:
            return
        narrow = sorted({*known} - wider)
        left, step = MOST_MISSING, usual_step(narrow)
        reached = min(interval.start for interval in known)
        for interval in narrow:
            for one in self._between(reached, interval.start, step, left):
                left -= 1
                yield one
            yield interval
            reached = max(reached, interval.end)
        ends = [interval.end for interval in wider]
        if self.schedule is not None:
            ends += filter(None, (end, self.due))
        yield from self._between(reached, max(ends, default=reached), step, left)

    def _between(self, start: datetime, end: datetime, step: int | None, most: int) -> Iterator[Interval]:
        """The first intervals of a gap, if there is one: as the schedule has them, or of the usual width."""
        return islice(self._of_gap(start, end, step), most) if start < end else iter(())

    def _of_gap(self, start: datetime, end: datetime, step: int | None) -> Iterator[Interval]:
        if self.schedule is not None:
            yield from (each for each in self.schedule(start, end) if start <= each.start and each.end <= end)
            return
        if not step:
            yield Interval(start, end)
            return
        number = max(1, min(MOST_MISSING, round((end - start).total_seconds() / step)))
        edges = [start + timedelta(seconds=step * each) for each in range(number)] + [end]
        for first, following in pairwise(edges):
            if first < following:
                yield Interval(first, following)

    def _as_part(self, whole: Run, runs: Sequence[RunStatus]) -> dict[str, Any]:
        """What a cell has of the wider interval that it is a part of: no figures."""
        state = self._cell(whole.interval, runs[:1], is_last=False)["state"]
        return {"state": state, "run": whole.name, "part_of": whole.name}

    def _cell(self, interval: Interval, runs: Sequence[RunStatus], *, is_last: bool) -> dict[str, Any]:
        """What is known of an interval."""
        dag_run = self.dag_runs.get(interval)
        newest = max(runs, key=lambda status: status.run.revision, default=None)
        name = interval.name
        return {
            "interval": name,
            "start": name[:20],
            "end": name[21:],
            "state": self._state(interval, newest, dag_run, is_last=is_last),
            "run": newest and newest.run.name,
            "part_of": None,
            "revision": newest and newest.run.revision,
            "revisions": len(runs),
            "slices": newest and newest.slices,
            "done": newest and (newest.slices if newest.complete else len(newest.done)),
            "records": newest and newest.records,
            "seconds": self.seconds.get(newest.run) if newest else None,
            "dag_run": dag_run and dag_run.to_dict(),
        }

    def _state(self, interval: Interval, newest: RunStatus | None, dag_run: DagRunSeen | None, *, is_last: bool) -> str:
        if newest is not None and newest.complete:
            return "complete" if newest.run.revision == 1 else "revised"
        if dag_run is not None and dag_run.state == "failed":
            return "failed"
        if dag_run is not None and (dag_run.state in _UNDER_WAY or self._is_ahead(dag_run)):
            return "running"
        if newest is not None and (dag_run is None or newest.run.revision > 1):
            return "running"  # by something else than a DAG run
        if dag_run is None and is_last and self.due is not None and interval.end > self.due:
            return "never_due"
        return "missing"

    def _is_ahead(self, dag_run: DagRunSeen) -> bool:
        """Whether it has ended since the look at what is on record, which the next one will show."""
        if dag_run.ended_at is None or self.looked_at is None:
            return False
        return dag_run.ended_at > self.looked_at - _CLOCKS_DIFFER


def usual_step(intervals: Sequence[Interval]) -> int | None:
    """The width that most intervals have, seconds; None if there are none."""
    widths = Counter(round((each.end - each.start).total_seconds()) for each in intervals)
    return widths.most_common(1)[0][0] if widths else None


def durations(seconds: Sequence[float]) -> dict[str, float] | None:
    """How long runs took; None if that is known of none."""
    if not seconds:
        return None
    of_95 = quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]
    return {"median": median(seconds), "p95": round(min(of_95, max(seconds)), 3), "longest": max(seconds)}
