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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_eos_provider.errors import EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Kafka, Session, WireSession, session_of
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.read.fetched import Fetcher, FetchOptions, LogRecord, Look
from airflow_eos_provider.kafka.read.topic_ends import Ends, Reach, ReplacedTopicError

if TYPE_CHECKING:
    from airflow_eos_provider.kafka.admin.client import Admin
    from airflow_eos_provider.kafka.admin.partition_writers import Batch
    from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

__all__ = ["WHOLE", "Elapsed", "LogRecord", "Reach", "TopicRead", "read_to_end", "scan_to_end"]

#: How long one look for new records may take, seconds; deadline and errors are looked at in between.
_LOOK_SECONDS = 0.2

#: How long the broker holds a fetch that has nothing to return, milliseconds. An end that is only a marker is seen by
#: such an empty fetch, and the next read's first question waits behind it, so this is the price of each read;
#: librdkafka's default is half a second.
_FETCH_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What stands in a topic, up to the end that it had when the read began.

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
OnRecords: TypeAlias = Callable[[Sequence[Any]], Collection[int] | None]

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
    options = _ReadOptions(FetchOptions(isolation, False, _FETCH_WAIT_MS), timeout_seconds)
    scan = _scan(kafka, topic, reach, records.extend, options, progress)
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

    :param on_records: called with one batch at a time; per partition in the order of the log. It may return partitions
        whose remaining records are not needed; a batch that is already fetched may still have some.
    :param isolation: ``read_committed`` or ``read_uncommitted``; under either, ends are the uncommitted ones.
    :param stall_only: the limit is of a stall: of the time in which no position moves, however long the whole takes.
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
    options = _ReadOptions(FetchOptions(isolation, headers, fetch_wait_ms), timeout_seconds, stall_only)
    return dict(_scan(kafka, topic, reach, on_records, options, progress, on_topic).ends)


def scan_batches(
    session: Session,
    topic: str,
    on_batches: Callable[[Sequence[Batch]], None],
    *,
    timeout_seconds: float,
    progress: Callable[[int, int], None] | None = None,
) -> TopicRead:
    """As :func:`scan_to_end`, without the records: what the headers of all their batches say.

    An open transaction is seen, and does not delay the read.

    :param timeout_seconds: limit of a stall.
    """
    fetch = FetchOptions("read_uncommitted", False, _FETCH_WAIT_MS, batches=True)
    scan = _scan(session, topic, WHOLE, on_batches, _ReadOptions(fetch, timeout_seconds, True), progress)
    return TopicRead(topic, (), scan.beginnings, scan.ends, scan.topic_id)


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """How a topic is read; see :func:`scan_to_end`."""

    fetch: FetchOptions
    timeout_seconds: float
    stall_only: bool = False


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
        admin = lent.enter_context(session.admin())
        ends = Ends(admin, topic, reach, min(options.timeout_seconds, CONNECT_SECONDS))
        fetcher = partial(_fetcher, session, admin, lent, topic, ends.topic_id, options.fetch)
        scan = _Scan(session.settings, fetcher, topic, ends.beginnings(), options)
        scan.topic_id = ends.topic_id
        on_topic(ends.topic_id)
        while True:
            scan.run(ends.now(), on_records, progress)
            if reach.compaction_lag_seconds is None or clock.seconds() <= reach.compaction_lag_seconds:
                ends.require_all_records()
                return scan
            clock = Elapsed()  # before the ends are asked for: what comes after them is younger than the clock


def open_consumer(session: Session, *, fetch_wait_ms: int = _FETCH_WAIT_MS) -> None:
    """Have a session's next read of committed records find its client connected; it connects in the background."""
    with contextlib.ExitStack() as lent:
        admin = lent.enter_context(session.admin())
        _fetcher(session, admin, lent, "", None, FetchOptions("read_committed", False, fetch_wait_ms))


def _fetcher(
    session: Session,
    admin: Admin,
    lent: contextlib.ExitStack,
    topic: str,
    topic_id: str | None,
    options: FetchOptions,
) -> Fetcher:
    # Spark's executors have no librdkafka, which hands over no batches.
    if isinstance(session, WireSession) or options.batches:
        from airflow_eos_provider.kafka.read.wire_fetcher import WireFetcher

        return WireFetcher(admin, topic, topic_id, options)
    from airflow_eos_provider.kafka.read.librdkafka_fetcher import LibrdkafkaFetcher, lent_consumer

    return LibrdkafkaFetcher(session, lent.enter_context(lent_consumer(session, options)), topic, options)


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
        settings: KafkaSettings,
        fetcher: Callable[[], Fetcher],
        topic: str,
        beginnings: dict[int, int],
        options: _ReadOptions,
    ) -> None:
        self._settings = settings
        self._make_fetcher = fetcher
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
    def _fetcher(self) -> Fetcher:
        return self._make_fetcher()  # not before there is something to read, for it costs time

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
            look, self.moved = self._fetcher.look(_LOOK_SECONDS), False
            records = self._take(look)
            if look.answered:
                self._fetcher.moved(self.moved)
            if records:
                for partition in on_records(records) or ():
                    self._reach(partition, self.ends[partition])
            if self.options.stall_only and self.moved:
                deadline = time.monotonic() + self.options.timeout_seconds
            if progress is not None and look.answered:
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
            self._fetcher.assign({partition: self.positions[partition] for partition in self.to_come})

    def _take(self, look: Look) -> Sequence[Any]:
        """Move the positions; the records that stand before the ends."""
        for partition, position in look.stopped.items():
            self._reach(partition, position)
            if partition in self.to_come:
                self.reached_stable_end.add(partition)
        records = look.records
        if any(position > self.ends[partition] for partition, position in look.reached.items()):
            records = [record for record in records if record.offset < self.ends[record.partition]]
        for partition, position in look.reached.items():
            self._reach(partition, position)
        return records

    def _reach(self, partition: int, position: int) -> None:
        if position <= self.positions[partition]:
            return
        self.positions[partition] = position
        self.moved = True
        self.reached_stable_end.discard(partition)
        if position >= self.ends[partition] and partition in self.to_come:
            self.to_come.remove(partition)
            # Others may still be far away; what is produced here meanwhile is not wanted.
            self._fetcher.pause(partition)

    def _too_late(self) -> EosError:
        if self._fetcher.is_refused or (self._fetcher.trouble and not self.reached_stable_end):
            return UnreachableError(
                f"The Kafka cluster at {self._settings.bootstrap_servers} went away while topic {self.topic} "
                f"was read: {self._fetcher.trouble}.",
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
