"""Sums up what a run moved and how long each part of it took; none of it decides anything."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from airflow_eos_provider.interval.messages import RunSummary, SliceResult, Stage, TaskSummary, rounded, spread_of
from airflow_eos_provider.interval.progress import OnStep
from airflow_eos_provider.interval.topics.ledger import SliceMeasures, SliceRecord

#: What the coordinator's steps are a part of; every other one belongs to ``begin``.
_PARTS = {
    "fence": "fence",
    "fence own ids": "fence",
    "compare input": "compare",
    "run stage": "stage",
    "read ledger at the end": "read_back",
    "write complete": "complete",
    "commit complete": "complete",
    "done": "complete",
}


class StepClock:
    """A stopwatch over a coordinator's steps: it is called with each step's name before the step is taken."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._part: str | None = None
        self._since = 0.0
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, step: str) -> None:
        self.turn(_PARTS.get(step, "begin"))
        self._on_step(step)

    def turn(self, part: str) -> None:
        """What comes now counts to this part."""
        now = time.monotonic()
        if self._part is not None:
            self.seconds[self._part] += now - self._since
        self._part, self._since = part, now


def summarise(
    done: Mapping[int, SliceRecord],
    *,
    fenced: int,
    written: Iterable[SliceResult],
    seconds: Mapping[str, float],
) -> RunSummary:
    """The summary of a run whose slices are all committed."""
    sums: defaultdict[str, float] = defaultdict(float)
    for record in done.values():
        for part, spent in record.measures.seconds.items():
            sums[part] += spent
    for result in written:
        if "commit" in result.stage_seconds:
            sums["commit"] += result.stage_seconds["commit"]
    sizes = [record.measures.bytes for record in done.values()]
    return RunSummary(
        transactions=len(done),
        bytes=sum(sizes),
        transaction_records=spread_of([record.records for record in done.values()]),
        transaction_bytes=spread_of(sizes),
        attempts_fenced=fenced + sum(_last_attempts(record.measures for record in done.values()).values()),
        seconds=rounded({**sums, **seconds}),
    )


def _last_attempts(measured: Iterable[SliceMeasures]) -> dict[int, int]:
    """By task the attempt that came last; each of those before was fenced by the next one's init."""
    last: dict[int, int] = {}
    for measures in measured:
        last[measures.task] = max(last.get(measures.task, 0), measures.attempt)
    return last


def by_task(stage: Stage, done: Mapping[int, SliceRecord], written: Iterable[SliceResult]) -> tuple[TaskSummary, ...]:
    """What each task of this stage wrote."""
    reported = {result.number: result.stage_seconds for result in written}
    found = []
    for task, numbers in enumerate(stage.assignment):
        pieces = [(number, done[number]) for number in numbers if number in done]
        if not pieces:
            continue
        sums: defaultdict[str, float] = defaultdict(float)
        for number, record in pieces:
            for part, spent in {**record.measures.seconds, **reported.get(number, {})}.items():
                sums[part] += spent
        found.append(
            TaskSummary(
                task=task,
                attempt=max(record.measures.attempt for _, record in pieces),
                slices=len(pieces),
                records=sum(record.records for _, record in pieces),
                bytes=sum(record.measures.bytes for _, record in pieces),
                seconds=rounded(sums),
            )
        )
    return tuple(found)
