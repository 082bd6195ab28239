"""Messages between coordinator, tasks and their callers: values without secrets, fit for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.topics.ledger import NO_DIGEST, CompleteRecord, SliceRecord, add_digests
from airflow_eos_provider.stored import from_json, members, to_json

#: Decimals of seconds.
_DECIMALS = 3


class IncompleteError(EosError):
    """The stage has ended, but slices are missing in the ledger. The run is not complete. Safe to run again."""


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """What is compared of a slice's rows; those of parts add up to those of the whole, in any order.

    :param digest: order-free digest of topic, key, value and headers of each, 32 hexadecimal digits.
    :param placed: likewise of those that name their partition or time themselves, with both. What a row leaves to
        Kafka differs between attempts and is in neither digest.
    """

    records: int = 0
    digest: str = NO_DIGEST
    placed: str = NO_DIGEST

    def __add__(self, other: SliceFigures) -> SliceFigures:
        digest = add_digests((self.digest, other.digest))
        return SliceFigures(self.records + other.records, digest, add_digests((self.placed, other.placed)))

    def __str__(self) -> str:
        placed = "" if self.placed == NO_DIGEST else f", placed {self.placed}"
        return f"{self.records} records, digest {self.digest}{placed}"

    @classmethod
    def of(cls, record: SliceRecord) -> SliceFigures:
        """The figures that a slice's ledger record has."""
        return cls(record.records, record.digest, record.placed)

    def to_list(self) -> list[Any]:
        return [self.records, self.digest, self.placed]


@dataclass(frozen=True, slots=True)
class Stage:
    """The work of one generation: what each task has to write.

    :param assignment: for each task the numbers of its unfinished slices. Within a generation a slice belongs to one
        task; task ``n`` writes under the transactional id ``<group>-<run>-<n>``.
    :param ledger_positions: by partition, up to where the coordinator has read the ledger.
    :param committed: what the ledger says of the slices that earlier generations have committed, by number.
    :param compared: whether the input of this attempt was found to have the same rows in these slices. Without it
        nothing is written and nothing completed, unless nothing is committed.
    :param control_id: topic id of the control topic that the generation is in: its offset means nothing in another one.
    :param began_at: the input of this attempt was looked up at or after this moment, seconds since the epoch, and it
        has all rows of the interval until then. None if that is not certain.
    """

    run: Run
    generation: int
    plan_hash: str
    slices: Sequence[Mapping[str, Any]]
    assignment: tuple[tuple[int, ...], ...]
    ledger_positions: Mapping[int, int]
    committed: Mapping[int, SliceFigures] = field(default_factory=dict)
    compared: bool = False
    ledgers: Mapping[str, str] = field(default_factory=dict)
    began_at: float | None = None
    control_id: str = ""
    ledger_id: str = ""

    def require_compared(self) -> None:
        if self.committed and not self.compared:
            raise EosError(
                f"{len(self.committed)} slices of {self.run} are committed, and this attempt's input was not compared "
                "with them.",
                expected="a stage that Coordinator.compare_input() has returned",
                remedy="Call it between begin() and the first task. Without it, a row that has moved since would be "
                "lost or duplicated.",
            )

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.assignment)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """The slices that are to be written, in their order."""
        return tuple(sorted(number for numbers in self.assignment for number in numbers))

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types alone: an executor that lacks this package gets it, too. Each task reads all slices."""
        committed = {number: figures.to_list() for number, figures in self.committed.items()}
        return {**members(self), "run": self.run.name, "slices": list(map(dict, self.slices)), "committed": committed}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Stage:
        values = {
            "run": Run.parse(document["run"]),
            "slices": tuple(document["slices"]),
            "assignment": tuple(map(tuple, document["assignment"])),
            "ledger_positions": {int(p): offset for p, offset in document["ledger_positions"].items()},
            "committed": {int(n): SliceFigures(*figures) for n, figures in document["committed"].items()},
        }
        return cls(**{**document, **values})


@dataclass(frozen=True, slots=True)
class SliceResult:
    """One slice, committed.

    :param dropped: rows of its source that it has not: without a time; with a time outside the interval, and the first
        and the last of these times, in microseconds since the epoch. Empty if none was looked for.
    """

    number: int
    records: int
    bytes: int
    digest: str
    seconds: float
    dropped: tuple[int, ...] = ()
    null_keys: int = 0
    stage_seconds: Mapping[str, float] = field(default_factory=dict)


#: Smallest, mean and largest of some sizes.
Spread = tuple[int, int, int]


def spread_of(sizes: Sequence[int]) -> Spread:
    return (min(sizes), sum(sizes) // len(sizes), max(sizes)) if sizes else (0, 0, 0)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """What one task of a stage wrote."""

    task: int
    attempt: int
    slices: int
    records: int
    bytes: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt else ""
        return (
            f"task {self.task}{again}: {self.slices} slices, {self.records:,} records, {self.bytes:,} bytes; "
            f"{in_words(self.seconds)}"
        )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a complete run moved, and how long each part took. It is stored in the run's ``complete`` record.

    :param attempts_fenced: attempts that were started and replaced: tasks that Spark started again, and transactions of
        earlier drivers that were open when this one fenced them.
    :param seconds: by part. ``read``, ``produce``, ``flush`` and ``commit`` are sums over the tasks, ``shuffle`` is the
        part of ``read`` that Spark waited for other executors, and the coordinator's ``begin``, ``fence``,
        ``compare``, ``stage`` and ``read_back`` follow one another. Unknown parts are left out.
    """

    transactions: int
    bytes: int
    transaction_records: Spread
    transaction_bytes: Spread
    attempts_fenced: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The summary as lines of text."""
        return [
            f"{self.transactions} transactions, {self.bytes:,} bytes; a transaction (min / avg / max): "
            f"{_sizes(self.transaction_records)} records, {_sizes(self.transaction_bytes)} bytes",
            f"seconds: {in_words(self.seconds)}; attempts fenced: {self.attempts_fenced}",
        ]


def encoded(summary: RunSummary) -> str:
    """As a ledger record has it: JSON as text, since Connect's offsets hold no mappings."""
    return json.dumps(to_json(summary), separators=(",", ":"), sort_keys=True)


def decoded(text: object) -> RunSummary | None:
    """What :func:`encoded` wrote; None if it is missing or from another version. Nothing depends on it."""
    if not isinstance(text, str):
        return None
    try:
        return from_json(RunSummary, json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Completed:
    """One interval, complete.

    :param run: the run that wrote it. Of an interval that is complete as a part of a wider one it is the wider one's,
        and so is all that follows.
    :param ended: whether every interval within it is complete, too.
    """

    run: Run
    records: int
    digest: str
    slices: int
    already: bool
    seconds: float
    summary: RunSummary | None = None
    tasks: tuple[TaskSummary, ...] = ()
    inputs: Mapping[str, int] = field(default_factory=dict)
    ended: bool = False

    @classmethod
    def of(cls, record: CompleteRecord, *, already: bool = True, seconds: float = 0.0) -> Completed:
        """What the ledger's record says."""
        summary = decoded(record.summary)
        own = (record.run, record.records, record.digest, record.slices)
        return cls(*own, already, seconds, summary, ended=record.ended)

    def to_dict(self) -> dict[str, Any]:
        return {**to_json(self), "interval": self.run.interval_name}


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {part: round(spent, _DECIMALS) for part, spent in seconds.items()}


def in_words(seconds: Mapping[str, float]) -> str:
    """``read 1.2, produce 3.0``."""
    return ", ".join(f"{part.replace('_', ' ')} {spent:.1f}" for part, spent in seconds.items()) or "unknown"


def _sizes(spread: Spread) -> str:
    return " / ".join(f"{size:,}" for size in spread)
