"""Follows a topic of interval runs from one end to the next, and reports why it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeAlias, TypeVar

from airflow_eos_provider.errors import EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.topics.pins import TopicChangedError
from airflow_eos_provider.interval.topics.preparation import COMPACTION_LAG_MS
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.kafka.kafka_session import Kafka, Session, session_of
from airflow_eos_provider.kafka.read.reader import LogRecord, Reach, open_consumer, scan_to_end
from airflow_eos_provider.kafka.read.topic_ends import DeletedRecordsError, ReplacedTopicError, UnknownTopicError

T = TypeVar("T")

#: Takes some records of a read, per partition in the order of the log. They are not collected: a list of all records of
#: a large ledger is as many objects, and Python's collector of cycles walks through all of them again and again.
Take: TypeAlias = Callable[[Sequence[LogRecord]], None]

_REPLACED = "Run the interval again: it compares the current topics with the topics that the run was started with."
_DELETED = (
    "Their information about written intervals is lost. You may delete a control topic while no run is in progress: "
    "the next run creates it again. You may not delete a ledger: find out which records are in the target, and write "
    "the missing ones under another pipeline name."
)

_PARTITION, _OFFSET = (itemgetter(LogRecord._fields.index(name)) for name in ("partition", "offset"))

#: A read that has not reached its end after so many seconds waits for a transaction, whose producer is looked for and
#: named. Each further try waits twice as long, so that a topic that is always busy is read, too.
_FIRST_LIMIT_SECONDS = 3.0

#: The longest that an open transaction may hold up a read, seconds: the brokers' usual transaction.max.timeout.ms, and
#: the minute between two of their looks for expired ones.
_LONGEST_WAIT_SECONDS = 960.0

#: How long the broker holds a fetch that has nothing to return, milliseconds: of a read that is at its end soon, and of
#: one that waits for a transaction's end and would keep the broker busy.
_QUICK_FETCH_MS = 1
_WAITING_FETCH_MS = 100

#: How long the brokers may leave questions about a topic unanswered, seconds, and the pause between two of them. A
#: broker that hangs is replaced as leader when its session ends, after 9 s unless set.
_ANSWER_SECONDS = 60.0
_PAUSE_SECONDS = 0.2

#: Every broker has heard of a topic within this time, seconds. The topics that are read here were seen before, by this
#: process or by who wrote of them; the one that is asked may hear of them last.
_NEWS_SECONDS = 10.0


def ask_until_answered(ask: Callable[[], T], topic: str, report: Report = silent) -> T:
    """Ask again where the brokers did not answer, or one does not know the topic yet, which was seen before."""

    def say(waited: float) -> None:
        report(f"The brokers have not answered about topic {topic} for {waited:.0f} s; asking again")

    known = partial(_ask_again, ask, UnknownTopicError, _NEWS_SECONDS, lambda _: None)
    return _ask_again(known, UnreachableError, _ANSWER_SECONDS, say)


def _ask_again(
    ask: Callable[[], T], where: type[EosError], limit_seconds: float, on_wait: Callable[[float], object]
) -> T:
    began = time.monotonic()
    while True:
        try:
            return ask()
        except where:
            waited = time.monotonic() - began
            if waited > limit_seconds:
                raise
            on_wait(waited)
            time.sleep(_PAUSE_SECONDS)


def open_reader(session: Session) -> None:
    """Have the client of a session's first read connect, while other clients are asked."""
    open_consumer(session, fetch_wait_ms=_QUICK_FETCH_MS)


class ReportBackoff:
    """Says when a line about what is waited for is due: after some seconds, then after twice as many, and so on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def is_due(self, waited_seconds: float) -> bool:
        """Whether a line is due; then the next one is after twice as many seconds."""
        is_due = waited_seconds >= self._seconds
        if is_due:
            self._seconds *= 2
        return is_due


class TopicReader:
    """Reads a topic on from where it stopped, to an end that is asked for at each call.

    A read that fails has handed over a part of its records; the next one goes on behind them.

    :param starts: by partition the offset to begin at, and only these partitions are read; None for the whole topic.
    :param topic_id: the id that the topic must have; None for that of the first read.
    :ivar topic_id: the topic's id, None before the first read.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        starts: Mapping[int, int] | None = None,
        *,
        topic_id: str | None = None,
        report: Report = silent,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._report = report
        self._partitions = None if starts is None else tuple(starts)
        self.topic_id = topic_id
        self.positions: dict[int, int] = dict(starts or {})

    def read(self, take: Take) -> None:
        """Hand over all committed records up to the uncommitted end of this moment; wait for open transactions before
        it.
        """
        began = time.monotonic()
        limit, fetch_wait_ms = _FIRST_LIMIT_SECONDS, _QUICK_FETCH_MS
        while True:
            try:
                return self._read(take, stable_only=False, timeout_seconds=limit, fetch_wait_ms=fetch_wait_ms)
            except ReadTimeoutError:
                waited = time.monotonic() - began
                if waited + limit > _LONGEST_WAIT_SECONDS:
                    raise
                self._report(f"Has waited {waited:.0f} s for the end of topic {self._topic}: {self._who_holds_it()}")
                limit, fetch_wait_ms = 2 * limit, _WAITING_FETCH_MS

    def read_stable(self, take: Take) -> None:
        """Hand over the committed records before the first open transaction. There may be more behind it."""
        self._read(take, stable_only=True, timeout_seconds=_LONGEST_WAIT_SECONDS, fetch_wait_ms=_QUICK_FETCH_MS)

    def _read(self, take: Take, *, stable_only: bool, timeout_seconds: float, fetch_wait_ms: int) -> None:
        def on_topic(topic_id: str | None) -> None:
            if topic_id is None and self.topic_id is not None:
                raise UnreachableError(f"No broker answered which id topic {self._topic} has.")
            self.topic_id = topic_id

        def on_records(records: Sequence[LogRecord]) -> None:
            take(records)
            reached = dict(zip(map(_PARTITION, records), map(_OFFSET, records), strict=True))  # the last of each
            self.positions.update((partition, offset + 1) for partition, offset in reached.items())

        def read() -> dict[int, int]:
            reach = Reach(
                start=dict(self.positions),
                partitions=self._partitions,
                stable_only=stable_only,
                compaction_lag_seconds=COMPACTION_LAG_MS / 1000,
                topic_id=self.topic_id,
                all_records=True,
            )
            return scan_to_end(
                self._kafka,
                self._topic,
                on_records,
                reach,
                timeout_seconds=timeout_seconds,
                fetch_wait_ms=fetch_wait_ms,
                on_topic=on_topic,
            )

        try:
            self.positions.update(ask_until_answered(read, self._topic, self._report))
        except ReplacedTopicError as error:
            remedy = _DELETED if isinstance(error, DeletedRecordsError) else _REPLACED
            raise TopicChangedError(error.found, expected=error.expected, remedy=remedy) from error

    def _who_holds_it(self) -> str:
        """The open transactions that have a partition of the topic, in words."""
        try:
            with session_of(self._kafka) as session, session.transactions() as client:
                described = client.describe(client.open_transactions(""))
        except EosError as error:
            return f"an open transaction, probably (which one is unknown: {error.found})"
        holders = [d for d in described.values() if any(topic == self._topic for topic, _ in d.partitions)]
        if not holders:
            return "no open transaction is listed there: the broker is slow, or the transaction has just ended"
        return "; ".join(_holder(d) for d in holders[:3])


def _holder(description: TransactionDescription) -> str:
    until = ""
    if description.started_at_ms is not None:
        limit = (description.started_at_ms + description.timeout_ms) / 1000
        until = f", until {time.strftime('%H:%M:%S', time.localtime(limit))} at the latest"
    return f"{description.transactional_id} has a transaction open ({description.state}){until}"
