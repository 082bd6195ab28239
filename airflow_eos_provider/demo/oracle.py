"""The oracle: compares the records that a reader of committed records gets, as a multiset, with the input.

It alone decides whether records are missing or duplicated; no counter, offset or log does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: How many examples a comparison names.
_EXAMPLES = 10

_LINE_PREFIX = b'{"line":'


@dataclass(slots=True)
class Drained:
    """The committed records of one topic, as a multiset of contents.

    :param copies: by digest of the content, one broker time (milliseconds) for each copy, in no order.
    :param lines: by digest, the line number that the content begins with; -1 if it begins with none.
    :param last_offsets: by partition, the offset of the last record (not of a marker).
    """

    topic: str
    records: int = 0
    copies: dict[bytes, list[int]] = field(default_factory=dict, repr=False)
    lines: dict[bytes, int] = field(default_factory=dict, repr=False)
    last_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            content = digest(record.value)
            self.copies.setdefault(content, []).append(record.timestamp_ms)
            if content not in self.lines:
                self.lines[content] = line_number(record.value)
            self.last_offsets[record.partition] = record.offset
        self.records += len(records)

    @property
    def repeats(self) -> int:
        """How many records repeat another one."""
        return self.records - len(self.copies)

    def counts(self) -> dict[bytes, int]:
        return {content: len(times) for content, times in self.copies.items()}


@dataclass(frozen=True, slots=True)
class Expected:
    """What should be in a topic: copies by digest, and the line number of each content."""

    name: str
    counts: Mapping[bytes, int] = field(repr=False)
    lines: Mapping[bytes, int] = field(repr=False)

    @property
    def records(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """A topic compared with what should be in it, duplicates counted from a given moment on.

    :param records: committed records in the topic.
    :param expected: records that should be there.
    :param missing: copies that should be there and are not.
    :param records_since: records appended since the moment; all if none is given.
    :param duplicates: surplus copies appended since the moment; all if none is given.
    :param duplicates_before: surplus copies appended before it.
    :param unexpected: records whose content was never put in.
    :param altered: unexpected records that carry the line number of a missing one.
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
    altered: int
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


def drain(
    settings: KafkaSettings,
    topic: str,
    *,
    timeout_seconds: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
) -> Drained:
    """Read a topic under read_committed from its beginning to its end.

    :param progress: called with offsets passed and offsets in all.
    :raises ReadTimeoutError: the end was not reached, usually because of an open transaction.
    """
    drained = Drained(topic)
    scan_to_end(settings, topic, drained.add, timeout_seconds=timeout_seconds, progress=progress)
    return drained


def expected_from_file(path: Path, name: str = "the input file") -> Expected:
    """The lines of a file, without their line feeds, as a line-reading connector turns them into records."""
    with path.open("rb") as file:
        return expected_from_values((line.rstrip(b"\n") for line in file), name)


def expected_from_values(values: Iterable[bytes], name: str) -> Expected:
    counts: dict[bytes, int] = {}
    lines: dict[bytes, int] = {}
    for value in values:
        content = digest(value)
        counts[content] = counts.get(content, 0) + 1
        lines[content] = line_number(value)
    return Expected(name, counts, lines)


def expected_from_topic(drained: Drained) -> Expected:
    """What a mirror of this topic should hold: each record as often as it is here."""
    return Expected(f"topic {drained.topic}", drained.counts(), drained.lines)


def compare(expected: Expected, drained: Drained, since_ms: int | None = None) -> Comparison:
    """Compare a topic with what should be in it.

    Of several copies of one content the earliest are taken for the right ones.

    :param since_ms: broker time from which on duplicates count as such; earlier ones are counted apart. The topic has
        to have ``message.timestamp.type=LogAppendTime``, or its times are not the broker's.
    """
    missing_lines: dict[int, int] = {}
    for content, wanted in expected.counts.items():
        short = wanted - len(drained.copies.get(content, ()))
        if short > 0:
            line = expected.lines[content]
            missing_lines[line] = missing_lines.get(line, 0) + short
    unexpected_lines: list[int] = []
    duplicate_lines: list[tuple[int, int]] = []
    for content, times in drained.copies.items():
        wanted = expected.counts.get(content, 0)
        if wanted == 0:
            unexpected_lines += [drained.lines[content]] * len(times)
        elif len(times) > wanted:
            duplicate_lines += [(drained.lines[content], time) for time in sorted(times)[wanted:]]
    late = [(line, time) for line, time in duplicate_lines if since_ms is None or time >= since_ms]
    altered = sorted(line for line in unexpected_lines if line in missing_lines)
    return Comparison(
        topic=drained.topic,
        against=expected.name,
        records=drained.records,
        expected=expected.records,
        missing=sum(missing_lines.values()),
        duplicates=len(late),
        duplicates_before=len(duplicate_lines) - len(late),
        unexpected=len(unexpected_lines),
        altered=len(altered),
        records_since=sum(
            1 for times in drained.copies.values() for time in times if since_ms is None or time >= since_ms
        ),
        examples=_examples(sorted(missing_lines), sorted(late), sorted(unexpected_lines), altered),
    )


def digest(value: bytes | None) -> bytes:
    """16 bytes that identify a content; a record without a value is unlike an empty one."""
    if value is None:
        return b""
    return hashlib.blake2b(value, digest_size=16).digest()


def line_number(value: bytes | None) -> int:
    """The number that a line of :func:`airflow_eos_provider.demo.flights.flight_lines` begins with; -1 if none."""
    if value is None or not value.startswith(_LINE_PREFIX):
        return -1
    end = value.find(b",", len(_LINE_PREFIX))
    number = value[len(_LINE_PREFIX) : end if end > 0 else len(value) - 1]
    return int(number) if number.isdigit() else -1


def _examples(
    missing: list[int], duplicates: list[tuple[int, int]], unexpected: list[int], altered: list[int]
) -> tuple[str, ...]:
    found = [f"line {line} is missing" for line in missing[:_EXAMPLES]]
    found += [f"line {line} once more at {time} ms" for line, time in duplicates[:_EXAMPLES]]
    found += [f"line {line} was altered" for line in altered[:_EXAMPLES]]
    unknown = [line for line in unexpected if line not in set(altered)]
    found += [f"a record that was never put in (line {line})" for line in unknown[:_EXAMPLES]]
    return tuple(found)
