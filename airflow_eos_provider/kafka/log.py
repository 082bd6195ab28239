"""A topic read to its end.

The end of a partition is asked for once, by *uncommitted* ListOffsets, and the reader goes on until its position is
there. Stopping at the committed end would miss committed records that stand behind an open transaction, and a missed
record is a wrong answer that looks like a right one. So an open transaction makes this reader wait, and at last fail.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, Complaints, QuietAdmin, explain, quiet_consumer
from airflow_eos_provider.kafka.config import KafkaSettings

#: Records handed over at once, at most.
_BATCH = 2000

#: How long one look for new records may take, seconds; deadline and errors are looked at in between.
_LOOK_SECONDS = 0.2

#: How long the broker holds a fetch that has nothing to return, milliseconds. An end that is only a marker is seen by
#: such an empty fetch, so this is the price of each read; librdkafka's default is half a second.
_FETCH_WAIT_MS = 20

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it stands in the log. The value is not part of the text form, for it may hold secrets."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A topic from its beginning to the end that it had when the read began.

    :param records: by partition in the order of the log; partitions mingle.
    :param beginning_offsets: first offset by partition.
    :param end_offsets: by partition the offset after the last record or marker, by uncommitted ListOffsets. Records
        that came later are left out.
    """

    topic: str
    records: tuple[LogRecord, ...] = field(repr=False)
    beginning_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]


def read_to_end(
    settings: KafkaSettings,
    topic: str,
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> TopicRead:
    """All records of a topic. Parameters and errors as in :func:`scan_to_end`."""
    records: list[LogRecord] = []
    span = _scan(settings, topic, records.extend, isolation, timeout_seconds, progress)
    return TopicRead(topic, tuple(records), span.beginnings, span.ends)


def scan_to_end(
    settings: KafkaSettings,
    topic: str,
    on_records: Callable[[Sequence[LogRecord]], None],
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, int]:
    """Hand a topic's records over without holding them.

    :param on_records: called with one batch at a time; per partition in the order of the log.
    :param isolation: ``read_committed`` or ``read_uncommitted``; under either, ends are the uncommitted ones.
    :param timeout_seconds: limit of the whole read.
    :param progress: called with offsets passed and offsets in all (markers and compacted ones counted in).
    :returns: end offset by partition.
    :raises ConfigurationError: there is no such topic, or it may not be read.
    :raises UnreachableError: no broker answers; told after a few seconds.
    :raises ReadTimeoutError: a partition's end was not reached in time.
    """
    return dict(_scan(settings, topic, on_records, isolation, timeout_seconds, progress).ends)


@dataclass(frozen=True, slots=True)
class _Span:
    beginnings: dict[int, int]
    ends: dict[int, int]


def _scan(
    settings: KafkaSettings,
    topic: str,
    on_records: Callable[[Sequence[LogRecord]], None],
    isolation: str,
    timeout_seconds: float,
    progress: Callable[[int, int], None] | None,
) -> _Span:
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ConfigurationError(f"isolation is {isolation!r}.", expected="read_committed or read_uncommitted")
    deadline = time.monotonic() + timeout_seconds
    span = _span(settings, topic, timeout_seconds)
    if span.ends == span.beginnings:  # nothing to read; a consumer would only cost time
        return span
    complaints = Complaints()
    consumer = quiet_consumer(
        settings,
        complaints,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
        fetch_wait_max_ms=_FETCH_WAIT_MS,
    )
    try:
        _Reading(settings, topic, span, consumer, complaints, timeout_seconds).run(on_records, deadline, progress)
    finally:
        with contextlib.suppress(KafkaException, RuntimeError):
            consumer.close()
    return span


def _span(settings: KafkaSettings, topic: str, timeout_seconds: float) -> _Span:
    """First and last offsets of every partition."""
    admin = QuietAdmin(settings)
    limit = min(timeout_seconds, CONNECT_SECONDS)
    what = f"describing topic {topic}"
    try:
        (future,) = admin.client.describe_topics(TopicCollection([topic]), request_timeout=limit).values()
        description = future.result()
    except ValueError as error:  # librdkafka's own check of the name
        raise ConfigurationError(f"{topic!r} is not a name of a topic: {error}.") from None
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
            raise ConfigurationError(
                f"There is no topic {topic} on the Kafka cluster at {settings.bootstrap_servers}.",
                remedy="Check the name and bootstrap_servers; a topic that one may not describe looks absent.",
            ) from error
        raise admin.explain(error, what) from error
    partitions = [TopicPartition(topic, partition.id) for partition in description.partitions]
    beginnings = _offsets(admin, partitions, _EARLIEST, limit, f"listing the first offsets of {topic}")
    ends = _offsets(admin, partitions, _LATEST, limit, f"listing the end offsets of {topic}")
    # A retention run between the two questions can move the beginning beyond what the first answer said, never back.
    return _Span(beginnings, ends)


def _offsets(
    admin: QuietAdmin, partitions: Sequence[TopicPartition], spec: OffsetSpec, limit: float, what: str
) -> dict[int, int]:
    futures = admin.client.list_offsets(
        dict.fromkeys(partitions, spec), isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=limit
    )
    return {tp.partition: int(admin.answer(future, what).offset) for tp, future in futures.items()}


class _Reading:
    """One read: positions move towards the ends."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        span: _Span,
        consumer: Consumer,
        complaints: Complaints,
        timeout_seconds: float,
    ) -> None:
        self.settings = settings
        self.topic = topic
        self.ends = span.ends
        self.beginnings = span.beginnings
        self.consumer = consumer
        self.complaints = complaints
        self.timeout_seconds = timeout_seconds
        self.positions = dict(span.beginnings)
        self.to_come = {p for p, end in span.ends.items() if span.beginnings[p] < end}
        self.stood_at_stable_end: set[int] = set()

    def run(
        self,
        on_records: Callable[[Sequence[LogRecord]], None],
        deadline: float,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.consumer.assign([TopicPartition(self.topic, p, self.positions[p]) for p in sorted(self.to_come)])
        total = sum(self.ends[p] - self.beginnings[p] for p in self.ends)
        while self.to_come:
            if time.monotonic() >= deadline:
                raise self._too_late()
            messages = self._look()
            records = self._take(messages)
            if messages:
                self.complaints.clear()
            if records:
                on_records(records)
            if progress is not None and messages:
                progress(sum(min(self.positions[p], self.ends[p]) - self.beginnings[p] for p in self.ends), total)

    def _look(self) -> list[Message]:
        """Wait for one event, then take what else is there; ``consume`` alone would wait for a whole batch."""
        first = self.consumer.poll(_LOOK_SECONDS)
        return [] if first is None else [first, *self.consumer.consume(num_messages=_BATCH, timeout=0)]

    def _take(self, messages: Sequence[Message]) -> list[LogRecord]:
        """Move the positions; the records that stand before the ends."""
        records = []
        reached: dict[int, int] = {}
        topic, ends = self.topic, self.ends
        for message in messages:  # a few microseconds each: this loop is what a large topic costs
            if (error := message.error()) is not None:
                self._take_event(message, error)
                continue
            partition: Any = message.partition()
            offset: Any = message.offset()
            if offset < ends[partition]:  # later ones came after the end was asked for
                stamp = message.timestamp()[1]
                records.append(LogRecord(topic, partition, offset, stamp, message.key(), message.value()))
            reached[partition] = offset + 1
        for partition, position in reached.items():
            self._reach(partition, position)
        return records

    def _take_event(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # The offset of this event is the position after all markers, aborted and compacted records, which no
            # message tells. Under read_committed it may be the last stable offset, short of the end.
            partition: Any = message.partition()
            self._reach(partition, message.offset())
            if partition in self.to_come:
                self.stood_at_stable_end.add(partition)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise explain(error, f"reading topic {self.topic}", self.settings)
        elif error.code() in _GONE:
            raise EosError(f"The topic {self.topic} went away while it was read.")
        # Anything else is news of the coordinator (we have no group, so no right to it is needed) or of a broker that
        # librdkafka will try again; the deadline bounds that.

    def _reach(self, partition: int, position: Any) -> None:
        if position <= self.positions[partition]:
            return
        self.positions[partition] = position
        self.stood_at_stable_end.discard(partition)
        if position >= self.ends[partition] and partition in self.to_come:
            self.to_come.remove(partition)
            # Others may still be far away; what is produced here meanwhile is not wanted.
            self.consumer.pause([TopicPartition(self.topic, partition)])

    def _too_late(self) -> EosError:
        if self.complaints.refused or (self.complaints.last and not self.stood_at_stable_end):
            return UnreachableError(
                f"The Kafka cluster at {self.settings.bootstrap_servers} went away while topic {self.topic} was read: "
                f"{self.complaints.last}.",
                remedy="Check that the brokers run.",
            )
        where = ", ".join(
            f"partition {p} at position {self.positions[p]} of {self.ends[p]}" for p in sorted(self.to_come)[:5]
        )
        if len(self.to_come) > 5:
            where += f" and {len(self.to_come) - 5} more"
        found = f"Topic {self.topic} was not read to its end within {self.timeout_seconds:g} s: {where}."
        if self.stood_at_stable_end:
            return ReadTimeoutError(
                f"{found} No committed record follows there: an open transaction probably holds back its readers.",
                remedy="Wait until it ends (at the latest by its transaction timeout, 60 s unless set), or find its "
                "producer in the broker's list of transactions.",
            )
        return ReadTimeoutError(f"{found} Records were still coming.", remedy="Allow more time.")
