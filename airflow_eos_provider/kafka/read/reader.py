"""Reads a topic to its end, for all of the package.

The reader asks for the end of a partition by *uncommitted* ListOffsets, and reads until its position is there. If it
stopped at the committed end, it would miss committed records behind an open transaction, and a missed record is a wrong
answer that seems right. So an open transaction makes this reader wait, and finally fail.

A compacted topic has one more trap: during the read, compaction may remove a record before the end because its key has
a newer one behind the end, and then the reader would see none of the two. Compaction leaves records alone for
``min.compaction.lag.ms``; a read that took longer asks for new ends and reads up to them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from operator import is_not, itemgetter
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, NOT_KNOWN, ClientErrors, explain
from airflow_eos_provider.kafka.read.ends import Ends, Reach, ReplacedTopicError
from airflow_eos_provider.kafka.session import AssignedConsumer, Kafka, Session, session_of

__all__ = ["WHOLE", "Elapsed", "LogRecord", "Reach", "TopicRead", "read_to_end", "scan_to_end"]

#: Records handed over at once, at most. Larger batches fall out of the processor's cache and are slower.
_BATCH = 500

#: How long one look for new records may take, seconds; deadline and errors are looked at in between.
_LOOK_SECONDS = 0.2

#: How long the question may take that wakes the client, seconds; without it the client wakes by itself after a second.
_WAKE_SECONDS = 1.0

#: How long the broker holds a fetch that has nothing to return, milliseconds. An end that is only a marker is seen by
#: such an empty fetch, and the next read's first question waits behind it, so this is the price of each read;
#: librdkafka's default is half a second.
_FETCH_WAIT_MS = 10

#: For how long librdkafka stops fetching once enough records wait for us, milliseconds. Its default, a second, is what
#: a large topic's read would mostly consist of: 2 million small records took 13 s, and 2 s with this.
_FETCH_BACKOFF_MS = 10

_SECOND = itemgetter(1)


class LogRecord(NamedTuple):
    """One record as it stands in the log. A tuple, for millions are made at once.

    ``headers`` are names and contents in their order, of a read that asks for them; None otherwise, or without any.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None = None

    def __repr__(self) -> str:
        """Without value and headers, which may be secret."""
        return f"LogRecord({self.topic}-{self.partition}@{self.offset}, key={self.key!r})"


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What stands in a topic, up to the end that it had when the read began.

    :param records: by partition in the order of the log; partitions mingle.
    :param beginning_offsets: by partition where the read began.
    :param end_offsets: by partition where it ended: the offset after the last record or marker, by uncommitted
        ListOffsets. Records that came later are left out; a next read may start here.
    :param topic_id: the topic's id, for a next read; None if it could not be asked for.
    """

    topic: str
    records: tuple[LogRecord, ...] = field(repr=False)
    beginning_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]
    topic_id: str | None = None


#: Takes a batch; may return the partitions of which it needs no more.
OnRecords: TypeAlias = Callable[[Sequence[LogRecord]], Collection[int] | None]

#: All of a topic.
WHOLE = Reach()


def read_to_end(
    kafka: Kafka,
    topic: str,
    reach: Reach = WHOLE,
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> TopicRead:
    """The records of a topic. Parameters and errors as in :func:`scan_to_end`."""
    records: list[LogRecord] = []
    scan = _scan(kafka, topic, reach, records.extend, _ReadOptions(isolation, timeout_seconds), progress)
    return TopicRead(topic, tuple(records), scan.beginnings, scan.ends, scan.topic_id)


def scan_to_end(
    kafka: Kafka,
    topic: str,
    on_records: OnRecords,
    reach: Reach = WHOLE,
    *,
    isolation: str = "read_committed",
    timeout_seconds: float = 30.0,
    stall_only: bool = False,
    headers: bool = False,
    fetch_wait_ms: int = _FETCH_WAIT_MS,
    on_topic: Callable[[str | None], None] = lambda topic_id: None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, int]:
    """Hand a topic's records over without holding them.

    :param kafka: its settings, or a session whose clients are used.
    :param on_records: called with one batch at a time; per partition in the order of the log. It may return partitions
        whose remaining records are not needed; a batch that is already fetched may still have some.
    :param reach: which part of the topic.
    :param isolation: ``read_committed`` or ``read_uncommitted``; under either, ends are the uncommitted ones.
    :param timeout_seconds: limit of the whole read; it begins anew when new ends are asked for.
    :param stall_only: the limit is of a stall: of the time in which no position moves, however long the whole takes.
    :param headers: read the records' headers, too, which cost as much as all the rest.
    :param fetch_wait_ms: how long the broker holds a fetch that has nothing to return, milliseconds. The shorter, the
        sooner an end is seen that is only a marker, and the more a reader costs that waits for a transaction's end:
        at 1 ms a third of a broker's core, at 10 ms a tenth.
    :param on_topic: called with the topic's id, None if it could not be asked for, before the first record.
    :param progress: called with offsets passed and offsets in all (markers and compacted ones counted in).
    :returns: end offset by partition.
    :raises UnknownTopicError: there is no such topic.
    :raises ConfigurationError: there is no such partition, or it may not be read.
    :raises UnreachableError: no broker answers; reported after a few seconds.
    :raises ReadTimeoutError: a partition's end was not reached in time.
    :raises ReplacedTopicError: it ends before the read's start, or has another id, and so is not the one it was; or
        records were deleted that ``reach`` needs.
    :raises EosError: the topic went away.
    """
    options = _ReadOptions(isolation, timeout_seconds, stall_only, headers, fetch_wait_ms)
    return dict(_scan(kafka, topic, reach, on_records, options, progress, on_topic).ends)


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """How a topic is read; see :func:`scan_to_end`."""

    isolation: str
    timeout_seconds: float
    stall_only: bool = False
    headers: bool = False
    fetch_wait_ms: int = _FETCH_WAIT_MS

    def __post_init__(self) -> None:
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ConfigurationError(f"isolation is {self.isolation!r}.", expected="read_committed or read_uncommitted")


def _scan(
    kafka: Kafka,
    topic: str,
    reach: Reach,
    on_records: OnRecords,
    options: _ReadOptions,
    progress: Callable[[int, int], None] | None,
    on_topic: Callable[[str | None], None] = lambda topic_id: None,
) -> _Scan:
    clock = Elapsed()
    with session_of(kafka) as session, contextlib.ExitStack() as lent:
        ends = Ends(lent.enter_context(session.admin()), topic, reach, min(options.timeout_seconds, CONNECT_SECONDS))
        scan = _Scan(session, lent, topic, ends.beginnings(), options)
        scan.topic_id = ends.topic_id
        on_topic(ends.topic_id)
        while True:
            scan.run(ends.now(), on_records, progress)
            if reach.compaction_lag_seconds is None or clock.seconds() <= reach.compaction_lag_seconds:
                ends.require_all_records()
                return scan
            clock = Elapsed()  # before the ends are asked for: what comes after them is younger than the clock


def open_consumer(session: Session, *, fetch_wait_ms: int = _FETCH_WAIT_MS) -> None:
    """Have a session's next read of committed records find its client connected; it connects in the background.

    :param fetch_wait_ms: as that read has it.
    """
    with _lent_consumer(session, _ReadOptions("read_committed", 0, fetch_wait_ms=fetch_wait_ms)):
        pass


def _lent_consumer(session: Session, options: _ReadOptions) -> contextlib.AbstractContextManager[AssignedConsumer]:
    return session.consumer(
        isolation_level=options.isolation,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
        fetch_wait_max_ms=options.fetch_wait_ms,
        fetch_queue_backoff_ms=_FETCH_BACKOFF_MS,
    )


class Elapsed:
    """Seconds since its making. The one clock does not see a suspended machine, the other may be set back."""

    def __init__(self) -> None:
        self._wall, self._monotonic = time.time(), time.monotonic()

    def seconds(self) -> float:
        return max(time.time() - self._wall, time.monotonic() - self._monotonic)


class _Scan:
    """One read: positions move towards the ends."""

    def __init__(
        self,
        session: Session,
        lent: contextlib.ExitStack,
        topic: str,
        beginnings: dict[int, int],
        options: _ReadOptions,
    ) -> None:
        self._session = session
        self._lent = lent
        self.topic = topic
        self.topic_id: str | None = None
        self.beginnings = beginnings
        self.ends: dict[int, int] = {}
        self.options = options
        self.positions = dict(beginnings)
        self.moved = False
        self.to_come: set[int] = set()
        self.reached_stable_end: set[int] = set()

    @cached_property
    def _consumer(self) -> AssignedConsumer:
        # Not before there is something to read, for it costs time.
        return self._lent.enter_context(_lent_consumer(self._session, self.options))

    @property
    def consumer(self) -> Consumer:
        return self._consumer.client

    @property
    def client_errors(self) -> ClientErrors:
        return self._consumer.client_errors

    def run(
        self,
        ends: dict[int, int],
        on_records: OnRecords,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Read on to these ends."""
        deadline = time.monotonic() + self.options.timeout_seconds
        self._aim_at(ends)
        total = sum(self.ends[p] - self.beginnings[p] for p in self.ends)
        while self.to_come:
            if time.monotonic() >= deadline:
                raise self._too_late()
            messages, self.moved = self._look(), False
            records = self._take(messages)
            if self.moved:
                self.client_errors.served()
            elif messages:
                self.client_errors.clear()
            if records:
                for partition in on_records(records) or ():
                    self._reach(partition, self.ends[partition])
            if self.options.stall_only and self.moved:
                deadline = time.monotonic() + self.options.timeout_seconds
            if progress is not None and messages:
                progress(sum(min(self.positions[p], self.ends[p]) - self.beginnings[p] for p in self.ends), total)

    def _aim_at(self, ends: dict[int, int]) -> None:
        self.ends = ends
        for partition, end in ends.items():
            if end < self.beginnings[partition]:
                raise ReplacedTopicError(
                    f"Partition {partition} of topic {self.topic} ends at {end}, before offset "
                    f"{self.beginnings[partition]}, which it had already reached.",
                    remedy="The topic was created again or lost records, so earlier reads of it are out of date.",
                )
        self.to_come = {p for p, end in ends.items() if self.positions[p] < end}
        if self.to_come:
            places = [TopicPartition(self.topic, p, self.positions[p]) for p in sorted(self.to_come)]
            self.consumer.assign(places)
            self.consumer.resume(places)  # those that had reached an earlier end stay paused otherwise
            self._wake(places)

    def _wake(self, places: list[TopicPartition]) -> None:
        """Let the consumer begin to fetch now.

        librdkafka's thread of a broker, if it has nothing to do, sees a new assignment up to a second late. A question
        to the partitions' leaders wakes it; what they answer is not needed.
        """
        ends = [TopicPartition(place.topic, place.partition, OFFSET_END) for place in places]
        with contextlib.suppress(KafkaException):
            self.consumer.offsets_for_times(ends, timeout=_WAKE_SECONDS)

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
        headers: Iterable[Any] = map(Message.headers, messages) if self.options.headers else repeat(None)
        fields = zip(repeat(self.topic), partitions, offsets, stamps, keys, values, headers, strict=False)
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
            # message reports. Under read_committed it may be the last stable offset, short of the end.
            partition: Any = message.partition()
            self._reach(partition, message.offset())
            if partition in self.to_come:
                self.reached_stable_end.add(partition)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            needs = {Resource.TOPIC: (self.topic, (Operation.READ, Operation.DESCRIBE))}
            raise explain(error, f"reading topic {self.topic}", self._session.settings, needs=needs)
        elif error.code() in NOT_KNOWN:
            raise EosError(f"The topic {self.topic} went away while it was read.")
        # Anything else is news of the coordinator (we have no group, so no right to it is needed) or of a broker that
        # librdkafka will try again; the deadline bounds that.

    def _reach(self, partition: int, position: Any) -> None:
        if position <= self.positions[partition]:
            return
        self.positions[partition] = position
        self.moved = True
        self.reached_stable_end.discard(partition)
        if position >= self.ends[partition] and partition in self.to_come:
            self.to_come.remove(partition)
            # Others may still be far away; what is produced here meanwhile is not wanted.
            self.consumer.pause([TopicPartition(self.topic, partition)])

    def _too_late(self) -> EosError:
        if self.client_errors.refused or (self.client_errors.last and not self.reached_stable_end):
            return UnreachableError(
                f"The Kafka cluster at {self._session.settings.bootstrap_servers} went away while topic {self.topic} "
                f"was read: {self.client_errors.last}.",
                remedy="Check that the brokers run.",
            )
        where = ", ".join(
            f"partition {p} at position {self.positions[p]} of {self.ends[p]}" for p in sorted(self.to_come)[:5]
        )
        if len(self.to_come) > 5:
            where += f" and {len(self.to_come) - 5} more"
        stopped = "had nothing more to read for" if self.options.stall_only else "was not read to its end within"
        found = f"Topic {self.topic} {stopped} {self.options.timeout_seconds:g} s: {where}."
        if self.reached_stable_end:
            return ReadTimeoutError(
                f"{found} No committed record follows there: an open transaction probably holds back its readers.",
                remedy="Wait until it ends (at the latest by its transaction timeout, 60 s unless set), or find its "
                "producer in the broker's list of transactions.",
            )
        return ReadTimeoutError(f"{found} Records were still coming.", remedy="Allow more time.")
