"""The oracle: compares the records that a ``read_committed`` consumer gets, as a multiset, with the input.

It alone decides whether records are missing or duplicated; no counter, offset or log does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: How many examples of one kind a comparison names.
_EXAMPLES = 10

_LINE_NUMBER = re.compile(rb'\{"line":(\d+)[,}]')


@dataclass(slots=True)
class Drained:
    """A multiset of contents: a topic's committed records, or its input.

    :param topic: the topic, or what the contents come from.
    :param copies: by digest of the content, one broker time (milliseconds) for each copy, in no order.
    :param lines: by digest, the line number that the content begins with; -1 if it begins with none.
    :param last_offsets: by partition, the offset of the last record (not of a marker).
    """

    topic: str
    copies: dict[bytes, list[int]] = field(default_factory=dict, repr=False)
    lines: dict[bytes, int] = field(default_factory=dict, repr=False)
    last_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            self.put(record.value, record.timestamp_ms)
            self.last_offsets[record.partition] = record.offset

    def put(self, value: bytes | None, at_ms: int = 0) -> None:
        """Add one copy of a content."""
        content = digest(value)
        self.copies.setdefault(content, []).append(at_ms)
        if content not in self.lines:
            self.lines[content] = line_number(value)

    @property
    def records(self) -> int:
        return sum(map(len, self.copies.values()))

    def counts(self) -> dict[bytes, int]:
        return {content: len(times) for content, times in self.copies.items()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A topic compared with what should be in it, duplicates counted from a given moment on.

    :param unexpected: records whose content was never put in.
    :param records_since: records appended since the moment; all if none is given. ``duplicates`` are surplus copies
        among them.
    :param examples: some of what is wrong, in words.
    """

    topic: str
    against: str
    records: int
    expected: int
    missing: int
    duplicates: int
    duplicates_before: int
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


def drain(settings: KafkaSettings, topic: str, *, timeout_seconds: float = 120.0) -> Drained:
    """Read a topic under read_committed from its beginning to its end.

    :raises ReadTimeoutError: the end was not reached, usually because of an open transaction.
    """
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
    """Compare a topic with what should be in it. Of several copies of one content the earliest are the right ones.

    :param expected: the input; for a mirror, the topic that it copies.
    :param since_ms: broker time from which on duplicates count as such; earlier ones are counted apart. The topic has
        to have ``message.timestamp.type=LogAppendTime``, or its times are not the broker's.
    """
    missing: list[int] = []
    unexpected: list[int] = []
    duplicates: list[tuple[int, int]] = []
    for content, wanted in expected.copies.items():
        missing += [expected.lines[content]] * (len(wanted) - len(drained.copies.get(content, ())))
    for content, times in drained.copies.items():
        line, right = drained.lines[content], len(expected.copies.get(content, ()))
        if not right:
            unexpected += [line] * len(times)
        elif len(times) > right:
            duplicates += [(line, time) for time in sorted(times)[right:]]
    late = [(line, time) for line, time in duplicates if since_ms is None or time >= since_ms]
    return Comparison(
        topic=drained.topic,
        against=expected.topic,
        records=drained.records,
        expected=expected.records,
        missing=len(missing),
        duplicates=len(late),
        duplicates_before=len(duplicates) - len(late),
        unexpected=len(unexpected),
        records_since=sum(since_ms is None or time >= since_ms for times in drained.copies.values() for time in times),
        examples=(
            *(f"line {line} is missing" for line in sorted(missing)[:_EXAMPLES]),
            *(f"line {line} once more at {time} ms" for line, time in sorted(late)[:_EXAMPLES]),
            *(f"a record that was never put in (line {line})" for line in sorted(unexpected)[:_EXAMPLES]),
        ),
    )


def digest(value: bytes | None) -> bytes:
    """16 bytes that identify a content; a record without a value is unlike an empty one."""
    return b"" if value is None else hashlib.blake2b(value, digest_size=16).digest()


def line_number(value: bytes | None) -> int:
    """The number that a line of :func:`airflow_eos_provider.demo.flights.flight_lines` begins with; -1 if none."""
    found = _LINE_NUMBER.match(value or b"")
    return int(found[1]) if found else -1
