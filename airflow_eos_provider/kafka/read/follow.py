"""Replays a topic of one partition into a value and follows it: each read takes only the new records.

A read keeps its progress, even if it times out. A topic that was deleted and created again is another topic, by its id
or because it ends earlier, and is read from its beginning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from airflow_eos_provider.errors import ConfigurationError, ReadTimeoutError
from airflow_eos_provider.kafka.kafka_session import Kafka, Session, session_of
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.topic_ends import Ends, Reach, ReplacedTopicError

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

#: A follower that has not read for so many seconds begins anew: a tombstone that it has not seen may be gone by then.
#: A compacted topic keeps them for a day by default (``delete.retention.ms``).
FOLLOWED_SECONDS = 3600.0


class Replay(Protocol[T_co]):
    """What the records of a topic add up to."""

    def take(self, records: Sequence[LogRecord]) -> None:
        """Some more records, in the order of the log."""

    def stop(self, position: int) -> None:
        """A read ends here, by offset; compaction may run before the next one."""

    def content(self, end_offset: int) -> T_co:
        """What all records so far add up to; later ones do not change it."""


class Follower(Generic[T]):
    """Reads one topic, and at the next question only what has come since. Safe to be asked by several threads."""

    def __init__(self, topic: str, begin: Callable[[], Replay[T]]) -> None:
        self.topic = topic
        self._begin = begin
        self._lock = threading.Lock()
        self._begin_anew()

    @property
    def position(self) -> int:
        """The offset from which the next read goes on."""
        return self._position

    def read(self, kafka: Kafka, timeout_seconds: float) -> T:
        """What all committed records add up to."""
        if not self._lock.acquire(timeout=max(0.0, timeout_seconds)):
            raise ReadTimeoutError(
                f"Topic {self.topic} is still being read by another thread.", remedy="Try again in a moment."
            )
        try:
            if time.monotonic() - self._read_at > FOLLOWED_SECONDS:
                self._begin_anew()
            with session_of(kafka) as session:
                try:
                    return self._read_on(session, timeout_seconds)
                except ReplacedTopicError:
                    self._begin_anew()
                    return self._read_on(session, timeout_seconds)
        except ConfigurationError:
            self._begin_anew()
            raise
        finally:
            self._lock.release()

    def _begin_anew(self) -> None:
        self._replay = self._begin()
        self._position = 0
        self._topic_id: str | None = None
        self._content: tuple[int, T] | None = None
        self._read_at = time.monotonic()

    def _read_on(self, session: Session, timeout_seconds: float) -> T:
        if self._topic_id is None:  # before the first record, for the read may not come to its end
            with session.admin() as admin:
                self._topic_id = Ends(admin, self.topic, Reach(), min(timeout_seconds, CONNECT_SECONDS)).topic_id
        # A compacted record that is missed on the way is superseded by one that stands behind the end, so the state of
        # this moment may lack it; the next read has it. Waiting until the end moves no more would cost every read.
        start = {0: self._position} if self._position else {}
        reach = Reach(start=start, topic_id=self._topic_id)
        try:
            ends = scan_to_end(session, self.topic, self._take, reach, timeout_seconds=timeout_seconds)
        except ReadTimeoutError:
            self._replay.stop(self._position)
            raise
        if len(ends) != 1:
            raise ConfigurationError(
                f"The topic {self.topic} has {len(ends)} partitions.",
                expected="one, so that its records are in order",
                remedy="Check its name, and who created it.",
            )
        self._position = end = ends[0]
        self._read_at = time.monotonic()
        self._replay.stop(end)
        if self._content is None or self._content[0] != end:
            self._content = (end, self._replay.content(end))
        return self._content[1]

    def _take(self, records: Sequence[LogRecord]) -> None:
        self._replay.take(records)
        self._position = records[-1].offset + 1
