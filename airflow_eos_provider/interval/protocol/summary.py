"""What a run moved and how long each part of it took; none of it decides anything."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.interval.protocol.ledger import SliceMeasures, SliceRecord

if TYPE_CHECKING:
    from airflow_eos_provider.interval.protocol.stage import OnStep, SliceResult, Stage

#: Decimals of seconds.
_DECIMALS = 3

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
    """A stopwatch over a coordinator's steps: it is called with each step's name before the step is taken.

    :param on_step: called likewise.
    :ivar seconds: of each part so far: ``begin``, ``fence``, ``compare``, ``stage`` (the tasks, as the coordinator
        waits for them), ``read_back`` (the ledger at the end, and until every reader has the records).
    """

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


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, mean and largest of some sizes."""

    min: int = 0
    avg: int = 0
    max: int = 0

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Spread:
        return cls(min(sizes), sum(sizes) // len(sizes), max(sizes)) if sizes else cls()

    def to_list(self) -> list[int]:
        return [self.min, self.avg, self.max]

    def __str__(self) -> str:
        return f"{self.min:,} / {self.avg:,} / {self.max:,}"


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """What one task of a stage wrote.

    :param attempt: of the task that wrote its last slice: how often Spark had started it before.
    :param slices: slices that it committed.
    :param bytes: of their records' keys and values.
    :param seconds: by stage, summed over its slices.
    """

    task: int
    attempt: int
    slices: int
    records: int
    bytes: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "attempt": self.attempt,
            "slices": self.slices,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": rounded(self.seconds),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TaskSummary:
        return cls(**document)

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt else ""
        return (
            f"task {self.task}{again}: {self.slices} slices, {self.records:,} records, {self.bytes:,} bytes; "
            f"{in_words(self.seconds)}"
        )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a complete run moved, and how long each part took; it stands in the run's ``complete``.

    :param transactions: slices, each one transaction, of whose size the ledger knows.
    :param bytes: of all their records' keys and values.
    :param transaction_records: records of a transaction.
    :param transaction_bytes: bytes of a transaction.
    :param attempts_fenced: attempts that were started and replaced: tasks that Spark started again, and transactions of
        earlier drivers that were open when this one fenced them.
    :param seconds: by part. ``read``, ``produce``, ``flush`` and ``commit`` are sums over the tasks, ``shuffle`` is the
        part of ``read`` that Spark waited for other executors, and the coordinator's ``begin``, ``fence``,
        ``compare``, ``stage`` and ``read_back`` pass one after the other. What is not known is left out.
    """

    transactions: int
    bytes: int
    transaction_records: Spread
    transaction_bytes: Spread
    attempts_fenced: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "transactions": self.transactions,
            "bytes": self.bytes,
            "transaction_records": self.transaction_records.to_list(),
            "transaction_bytes": self.transaction_bytes.to_list(),
            "attempts_fenced": self.attempts_fenced,
            "seconds": rounded(self.seconds),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RunSummary:
        return cls(
            document["transactions"],
            document["bytes"],
            Spread(*document["transaction_records"]),
            Spread(*document["transaction_bytes"]),
            document["attempts_fenced"],
            {str(part): float(seconds) for part, seconds in document["seconds"].items()},
        )

    def lines(self) -> list[str]:
        """It in words, a line an idea."""
        return [
            f"{self.transactions} transactions, {self.bytes:,} bytes; a transaction (min / avg / max): "
            f"{self.transaction_records} records, {self.transaction_bytes} bytes",
            f"seconds: {in_words(self.seconds)}; attempts fenced: {self.attempts_fenced}",
        ]


def encoded(summary: RunSummary) -> str:
    """As a ledger record has it: JSON as text, since Connect's offsets hold no mappings."""
    return json.dumps(summary.to_dict(), separators=(",", ":"), sort_keys=True)


def decoded(text: object) -> RunSummary | None:
    """What :func:`encoded` wrote; None if there is none, or another version wrote it, which nothing rests on."""
    if not isinstance(text, str):
        return None
    try:
        return RunSummary.from_dict(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def summarise(
    done: Mapping[int, SliceRecord],
    *,
    fenced: int,
    written: Iterable[SliceResult],
    seconds: Mapping[str, float],
) -> RunSummary:
    """The summary of a run whose slices are all committed.

    :param done: what the ledger has of each slice.
    :param fenced: transactions of earlier drivers that were open when they were fenced.
    :param written: what this attempt's tasks reported; the ledger does not know how long a commit took.
    :param seconds: of the coordinator, and whatever else is known.
    """
    measured = [(record.records, record.measures) for record in done.values() if record.measures is not None]
    sums: defaultdict[str, float] = defaultdict(float)
    for _, measures in measured:
        for part, spent in measures.seconds.items():
            sums[part] += spent
    for result in written:
        if "commit" in result.stage_seconds:
            sums["commit"] += result.stage_seconds["commit"]
    sizes = [measures.bytes for _, measures in measured]
    return RunSummary(
        transactions=len(measured),
        bytes=sum(sizes),
        transaction_records=Spread.of([records for records, _ in measured]),
        transaction_bytes=Spread.of(sizes),
        attempts_fenced=fenced + sum(_last_attempts([measures for _, measures in measured]).values()),
        seconds={**sums, **seconds},
    )


def _last_attempts(measured: Iterable[SliceMeasures]) -> dict[int, int]:
    """By task the attempt that came last; each of those before was fenced by the next one's init."""
    last: dict[int, int] = {}
    for measures in measured:
        last[measures.task] = max(last.get(measures.task, 0), measures.attempt)
    return last


def by_task(stage: Stage, done: Mapping[int, SliceRecord], written: Iterable[SliceResult]) -> tuple[TaskSummary, ...]:
    """What each task of this stage wrote.

    :param done: what the ledger has of each slice.
    :param written: what the tasks reported.
    """
    reported = {result.number: result.stage_seconds for result in written}
    found = []
    for task, numbers in enumerate(stage.assignment):
        pieces = [(number, done[number]) for number in numbers if number in done and done[number].measures is not None]
        if not pieces:
            continue
        sums: defaultdict[str, float] = defaultdict(float)
        for number, record in pieces:
            assert record.measures is not None
            for part, spent in {**record.measures.seconds, **reported.get(number, {})}.items():
                sums[part] += spent
        measures = [record.measures for _, record in pieces if record.measures is not None]
        found.append(
            TaskSummary(
                task=task,
                attempt=max(one.attempt for one in measures),
                slices=len(pieces),
                records=sum(record.records for _, record in pieces),
                bytes=sum(one.bytes for one in measures),
                seconds=dict(sums),
            )
        )
    return tuple(found)


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {part: round(spent, _DECIMALS) for part, spent in seconds.items()}


def in_words(seconds: Mapping[str, float]) -> str:
    """``read 1.2, produce 3.0``."""
    return ", ".join(f"{part.replace('_', ' ')} {spent:.1f}" for part, spent in seconds.items()) or "not known"
