"""A topic read to its end.

The end of a partition is asked for by *uncommitted* ListOffsets, and the reader goes on until its position is there.
Stopping at the committed end would miss committed records that stand behind an open transaction, and a missed record is
a wrong answer that looks like a right one. So an open transaction makes this reader wait, and at last fail.

A compacted topic has one more trap: while the reader is on its way, a record before the end may go on behalf of a later
one of its key that stands behind the end, and then the reader sees neither. Compaction leaves records alone for
``min.compaction.lag.ms``; a read that took longer asks for new ends and goes on to those.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_not, itemgetter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, Complaints, explain, quiet_consumer
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.ends import Ends, Reach

__all__ = ["WHOLE", "LogRecord", "Reach", "TopicRead", "read_to_end", "scan_to_end"]

#: Records handed over at once, at most. Larger batches fall out of the processor's cache and are slower.
_BATCH = 500

#: How long one look for new records may take, seconds; deadline and errors are looked at in between.
_LOOK_SECONDS = 0.2

#: How long the broker holds a fetch that has nothing to return, milliseconds. An end that is only a marker is seen by
#: such an empty fetch, so this is the price of each read; librdkafka's default is half a second.
_FETCH_WAIT_MS = 20

#: For how long librdkafka stops fetching once enough records wait for us, milliseconds. Its default, a second, is what
#: a large topic's read would mostly consist of: 2 million small records took 13 s, and 2 s with this.
_FETCH_BACKOFF_MS = 10

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_SECOND = itemgetter(1)


class LogRecord(NamedTuple):
    """One record as it stands in the log. A tuple, for millions are made at once."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    def __repr__(self) -> str:
        """Without the value, which may be secret."""
        return f"LogRecord({self.topic}-{self.partition}@{self.offset}, key={self.key!r})"


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What stands in a topic, up to the end that it had when the read began.

    :param records: by partition in the order of the log; partitions mingle.
    :param beginning_offsets: by partition where the read began.
    :param end_offsets: by partition where it ended: the offset after the last record or marker, by uncommitted
        ListOffsets. Records that came later are left out; a next read may start here.
    """

    topic: str
    records: tuple[LogRecord, ...] = field(repr=False)
    beginning_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]


#: All of a topic.
WHOLE = Reach()


def read_to_end(
    settings: KafkaSettings,
    topic: str,
    reach: Reach = WHOLE,
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> TopicRead:
    """The records of a topic. Parameters and errors as in :func:`scan_to_end`."""
    records: list[LogRecord] = []
    reading = _scan(settings, topic, reach, records.extend, isolation, timeout_seconds, progress)
    return TopicRead(topic, tuple(records), reading.beginnings, reading.ends)


def scan_to_end(
    settings: KafkaSettings,
    topic: str,
    on_records: Callable[[Sequence[LogRecord]], None],
    reach: Reach = WHOLE,
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, int]:
    """Hand a topic's records over without holding them.

    :param on_records: called with one batch at a time; per partition in the order of the log.
    :param reach: which part of the topic.
    :param isolation: ``read_committed`` or ``read_uncommitted``; under either, ends are the uncommitted ones.
    :param timeout_seconds: limit of the whole read; it begins anew when new ends are asked for.
    :param progress: called with offsets passed and offsets in all (markers and compacted ones counted in).
    :returns: end offset by partition.
    :raises ConfigurationError: there is no such topic or partition, or it may not be read.
    :raises UnreachableError: no broker answers; told after a few seconds.
    :raises ReadTimeoutError: a partition's end was not reached in time.
    :raises EosError: the topic went away, or it ends before the read's start and so is not the one it was.
    """
    return dict(_scan(settings, topic, reach, on_records, isolation, timeout_seconds, progress).ends)


def _scan(
    settings: KafkaSettings,
    topic: str,
    reach: Reach,
    on_records: Callable[[Sequence[LogRecord]], None],
    isolation: str,
    timeout_seconds: float,
    progress: Callable[[int, int], None] | None,
) -> _Reading:
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ConfigurationError(f"isolation is {isolation!r}.", expected="read_committed or read_uncommitted")
    clock = _Clock()
    ends = Ends(settings, topic, reach, min(timeout_seconds, CONNECT_SECONDS))
    reading = _Reading(settings, topic, ends.beginnings(), isolation, timeout_seconds)
    try:
        while True:
            reading.run(ends.now(), on_records, progress)
            if reach.compaction_lag_seconds is None or clock.seconds() <= reach.compaction_lag_seconds:
                return reading
            clock = _Clock()  # before the ends are asked for: what comes after them is younger than the clock
    finally:
        reading.close()


class _Clock:
    """Seconds since its making. The one clock does not see a suspended machine, the other may be set back."""

    def __init__(self) -> None:
        self._wall, self._monotonic = time.time(), time.monotonic()

    def seconds(self) -> float:
        return max(time.time() - self._wall, time.monotonic() - self._monotonic)


class _Reading:
    """One read: positions move towards the ends."""

    def __init__(
        self, settings: KafkaSettings, topic: str, beginnings: dict[int, int], isolation: str, timeout_seconds: float
    ) -> None:
        self.settings = settings
        self.topic = topic
        self.beginnings = beginnings
        self.ends: dict[int, int] = {}
        self.isolation = isolation
        self.timeout_seconds = timeout_seconds
        self.complaints = Complaints()
        self.positions = dict(beginnings)
        self.to_come: set[int] = set()
        self.stood_at_stable_end: set[int] = set()
        self._consumer: Consumer | None = None

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:  # not before there is something to read, for it costs time
            self._consumer = quiet_consumer(
                self.settings,
                self.complaints,
                isolation_level=self.isolation,
                auto_offset_reset="earliest",
                enable_partition_eof=True,
                allow_auto_create_topics=False,
                fetch_wait_max_ms=_FETCH_WAIT_MS,
                fetch_queue_backoff_ms=_FETCH_BACKOFF_MS,
            )
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            with contextlib.suppress(KafkaException, RuntimeError):
                self._consumer.close()

    def run(
        self,
        ends: dict[int, int],
        on_records: Callable[[Sequence[LogRecord]], None],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Read on to these ends."""
        deadline = time.monotonic() + self.timeout_seconds
        self._aim_at(ends)
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

    def _aim_at(self, ends: dict[int, int]) -> None:
        self.ends = ends
        for partition, end in ends.items():
            if end < self.beginnings[partition]:
                raise EosError(
                    f"Partition {partition} of topic {self.topic} ends at {end}, before offset "
                    f"{self.beginnings[partition]}, which it had already reached.",
                    remedy="The topic was made anew or lost records, so what was known of it does not hold any more.",
                )
        self.to_come = {p for p, end in ends.items() if self.positions[p] < end}
        if self.to_come:
            places = [TopicPartition(self.topic, p, self.positions[p]) for p in sorted(self.to_come)]
            self.consumer.assign(places)
            self.consumer.resume(places)  # those that had reached an earlier end stay paused otherwise

    def _look(self) -> list[Message]:
        """Wait for one event, then take what else is there; ``consume`` alone would wait for a whole batch."""
        first = self.consumer.poll(_LOOK_SECONDS)
        return [] if first is None else [first, *self.consumer.consume(num_messages=_BATCH, timeout=0)]

    def _take(self, messages: Sequence[Message]) -> list[LogRecord]:
        """Move the positions; the records that stand before the ends."""
        # This is what a large topic's read costs, so no step of Python is done once a record: twice as fast as a loop.
        errors = list(map(Message.error, messages))
        if any(map(is_not, errors, repeat(None))):
            for message, error in zip(messages, errors, strict=True):
                if error is not None:
                    self._take_event(message, error)
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        partitions: list[Any] = list(map(Message.partition, messages))
        offsets: list[Any] = list(map(Message.offset, messages))
        stamps = map(_SECOND, map(Message.timestamp, messages))
        keys, values = map(Message.key, messages), map(Message.value, messages)
        fields = zip(repeat(self.topic), partitions, offsets, stamps, keys, values, strict=False)
        records: list[LogRecord] = list(map(tuple.__new__, repeat(LogRecord), fields))
        reached = dict(zip(partitions, offsets, strict=True))  # the last of each partition, for they ascend
        if any(offset >= self.ends[partition] for partition, offset in reached.items()):
            records = [record for record in records if record.offset < self.ends[record.partition]]
        for partition, offset in reached.items():
            self._reach(partition, offset + 1)
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
