"""The journal's topic: created, read to its end, and appended to outside of the journal's transactions.

What is only asked of a controller is written without a transactional id (:func:`ask`), so that asking fences no one; so
is the record by which the broker's time is learnt (:func:`clock_of`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.journal.content import JournalContent, JournalReplay
from airflow_eos_provider.journal.journal_transactions import TRANSACTION_TIMEOUT_MS
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import (
    CLOCK_KEY,
    REQUEST_KEY,
    Request,
    encode,
)
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.read.follow import Follower
from airflow_eos_provider.kafka.read.topic_ends import UnknownTopicError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.plain import write_plainly

#: Limit of one call that is no transaction.
CALL_TIMEOUT_SECONDS = 20.0

#: A controller that was killed in mid-transaction holds up readers until the broker ends that, which it looks for every
#: ten seconds (``transaction.abort.timed.out.transaction.cleanup.interval.ms``).
READ_TIMEOUT_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 10.0 + 10.0


#: By this setting the broker dates each record, not the machine that writes it. Leases end by the broker's clock, and
#: so is the moment dated from which every worker is proven in the new mode.
_TIMESTAMPS = "message.timestamp.type"
_BY_THE_BROKER = "LogAppendTime"
_SETTINGS = {"cleanup.policy": "compact", _TIMESTAMPS: _BY_THE_BROKER}


def read_journal(kafka: Kafka, group_id: str, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> JournalContent:
    """The journal as committed; empty if this group was never rolled."""
    with session_of(kafka) as session:
        try:
            return session.follower(_journal_follower, journal_topic(group_id)).read(session, timeout_seconds)
        except UnknownTopicError:
            return JournalContent()


def _journal_follower(topic: str) -> Follower[JournalContent]:
    return Follower(topic, JournalReplay)


def ask(settings: KafkaSettings, group_id: str, request: Request) -> None:
    """Leave a request for the controller of a rollout, which looks for it before each act and while it waits."""
    # A second copy could come after the answer, and ask the next controller once more.
    _append(settings, group_id, REQUEST_KEY + request.rollout_id, encode(request), once=True)


class BrokerClock:
    """Counts the broker's time, by which leases end: two machines' clocks may differ by more than a lease lives.

    A record's append time is the broker's. From such a record on, this machine's monotonic clock counts; it is off by
    the moment between append and answer, and late, never early: a lease may last slightly too long, never too short.

    :param append: appends a record and returns its append time, milliseconds since the epoch; asked once, unless a
        time is noted before.
    """

    def __init__(self, append: Callable[[], int]) -> None:
        self._append = append
        self._broker_minus_monotonic: float | None = None

    def note(self, appended_at_ms: int) -> None:
        """A record was appended at this moment, and the answer has just come."""
        self._broker_minus_monotonic = appended_at_ms / 1000 - time.monotonic()

    def now(self) -> float:
        """The broker's time, seconds since the epoch."""
        if self._broker_minus_monotonic is None:
            self.note(self._append())
        assert self._broker_minus_monotonic is not None
        return self._broker_minus_monotonic + time.monotonic()


def clock_of(settings: KafkaSettings, group_id: str) -> BrokerClock:
    """The broker's time, for a controller that is about to act on a group whose journal exists.

    It is learnt, where it is asked for, by a record without content that fences no one and that compaction removes.
    """
    return BrokerClock(lambda: _append(settings, group_id, CLOCK_KEY, None, once=False))


def _append(settings: KafkaSettings, group_id: str, key: str, value: bytes | None, *, once: bool) -> int:
    """Append one record to a journal, outside of any transaction; returns the broker's time of it, milliseconds."""
    topic = journal_topic(group_id)
    records, what = [(0, key.encode(), value)], f"writing to topic {topic}"
    return write_plainly(settings, topic, records, what, seconds=CALL_TIMEOUT_SECONDS, once=once)


def prepare_journal(settings: KafkaSettings, group_id: str, report: Callable[[str], None]) -> None:
    """Create the topic, or let the broker date an existing one.

    Where the topic may not be altered, leases end by the clocks of the machines that write them.
    """
    name, topics = journal_topic(group_id), Topics(settings)
    if not topics.describe([name]) and topics.create(name, 1, _SETTINGS):
        return
    try:
        if topics.settings_of([name])[name][_TIMESTAMPS] == _BY_THE_BROKER:
            return
        topics.change(name, {_TIMESTAMPS: _BY_THE_BROKER})
        report(f"The journal {name} was not dated by the broker; {_TIMESTAMPS} is set.")
    except EosError as error:
        report(
            f"eos cannot make the broker date the journal {name} ({_TIMESTAMPS}={_BY_THE_BROKER}): {error.found} "
            "Leases may end by the clocks of the machines that write them: keep these clocks synchronized."
        )
