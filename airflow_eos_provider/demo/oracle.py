"""The oracle: compares the records that a ``read_committed`` consumer gets, as a multiset, with the input.

It alone decides whether records are missing or duplicated; no counter, offset or log does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: How many examples of one kind a comparison names, and how much of each value it shows.
_EXAMPLES = 10
_EXAMPLE_CHARACTERS = 80


@dataclass(slots=True)
class Drained:
    """A multiset of values: a topic's committed records, or its input.

    :param copies: by value, one broker time (milliseconds) for each copy, in no order.
    :param last_offsets: by partition, the offset of the last record (not of a marker).
    """

    topic: str
    copies: dict[bytes | None, list[int]] = field(default_factory=dict, repr=False)
    last_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            self.put(record.value, record.timestamp_ms)
            self.last_offsets[record.partition] = record.offset

    def put(self, value: bytes | None, at_ms: int = 0) -> None:
        """Add one copy of a value."""
        self.copies.setdefault(value, []).append(at_ms)

    @property
    def records(self) -> int:
        return sum(map(len, self.copies.values()))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A topic compared with what should be in it, duplicates counted from a given moment on.

    :param unexpected: records whose value is not in the input.
    :param records_since: records appended since the moment; all if none is given. ``duplicates`` are surplus copies
        among them.
    """

    topic: str
    records: int
    expected: int
    missing: int
    duplicates: int
    duplicates_before_enabled: int
    unexpected: int
    records_since: int
    examples: tuple[str, ...] = ()

    @property
    def nothing_missing(self) -> bool:
        return self.missing == 0 and self.unexpected == 0

    @property
    def nothing_double(self) -> bool:
        """Whether records came since the moment, none of them twice."""
        return self.duplicates == 0 and self.records_since > 0

    @property
    def exactly_once(self) -> bool:
        """Whether no records are missing, and none was duplicated since that moment."""
        return self.nothing_missing and self.nothing_double


def drain(settings: KafkaSettings, topic: str, *, timeout_seconds: float = 300.0) -> Drained:
    """Read a topic under read_committed from its beginning to its end."""
    drained = Drained(topic)
    scan_to_end(settings, topic, drained.add, timeout_seconds=timeout_seconds)
    return drained


def expected_from_file(path: Path) -> Drained:
    """The lines of a file, without their line feeds, as a line-reading connector turns them into records."""
    with path.open("rb") as file:
        return expected_from_values((line.rstrip(b"\n") for line in file), "the input file")


def expected_from_values(values: Iterable[bytes], name: str) -> Drained:
    expected = Drained(name)
    for value in values:
        expected.put(value)
    return expected


def compare(expected: Drained, drained: Drained, since_ms: int | None = None) -> Comparison:
    """Compare a topic with what should be in it. Of several copies of one value the earliest are the right ones.

    :param expected: the input; for a mirror, the topic that it copies.
    :param since_ms: broker time from which on duplicates count as such; earlier ones are counted apart. The topic has
        to have ``message.timestamp.type=LogAppendTime``, or its times are not the broker's.
    """
    missing: list[bytes | None] = []
    unexpected: list[bytes | None] = []
    duplicates: list[tuple[bytes | None, int]] = []
    for value, wanted in expected.copies.items():
        missing += [value] * (len(wanted) - len(drained.copies.get(value, ())))
    for value, times in drained.copies.items():
        right = len(expected.copies.get(value, ()))
        if right:
            duplicates += [(value, time) for time in sorted(times)[right:]]
        else:
            unexpected += [value] * len(times)
    late = [(value, time) for value, time in duplicates if since_ms is None or time >= since_ms]
    return Comparison(
        topic=drained.topic,
        records=drained.records,
        expected=expected.records,
        missing=len(missing),
        duplicates=len(late),
        duplicates_before_enabled=len(duplicates) - len(late),
        unexpected=len(unexpected),
        records_since=sum(since_ms is None or time >= since_ms for times in drained.copies.values() for time in times),
        examples=(
            *(f"missing: {_shown(value)}" for value in missing[:_EXAMPLES]),
            *(f"duplicate at {time} ms: {_shown(value)}" for value, time in late[:_EXAMPLES]),
            *(f"not in the input: {_shown(value)}" for value in unexpected[:_EXAMPLES]),
        ),
    )


def _shown(value: bytes | None) -> str:
    return "no value" if value is None else value[:_EXAMPLE_CHARACTERS].decode(errors="replace")
