"""The journal's topic: created, read to its end, and appended to outside of the journal's transactions.

What is only asked of a controller is written without a transactional id (:func:`ask`), so that asking fences no one; so
is the record by which the broker's time is learnt (:func:`clock_of`).
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.journal.broker_clock import BrokerClock
from airflow_eos_provider.journal.content import JournalContent, JournalReplay
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import (
    CLOCK_KEY,
    REQUEST_KEY,
    Request,
    encode,
)
from airflow_eos_provider.journal.transactions import TRANSACTION_TIMEOUT_MS
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import ClientErrors, explain, quiet_producer
from airflow_eos_provider.kafka.read.ends import UnknownTopicError
from airflow_eos_provider.kafka.read.follow import Follower
from airflow_eos_provider.kafka.session import Kafka, session_of
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics

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


def clock_of(settings: KafkaSettings, group_id: str) -> BrokerClock:
    """The broker's time, for a controller that is about to act on a group whose journal exists.

    It is learnt, where it is asked for, by a record without content that fences no one and that compaction removes.
    """
    return BrokerClock(lambda: _append(settings, group_id, CLOCK_KEY, None, once=False))


def _append(settings: KafkaSettings, group_id: str, key: str, value: bytes | None, *, once: bool) -> int:
    """Append one record to a journal, outside of any transaction.

    :param once: a retry must not append it twice. That costs half a second: librdkafka asks for its producer id before
        it is connected, and then once more after that time.
    :returns: the broker's time of it, milliseconds since the epoch.
    """
    failures: list[KafkaError] = []
    appended: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            appended.append(message.timestamp()[1])

    client_errors = ClientErrors()
    producer = quiet_producer(settings, client_errors, enable_idempotence=once)
    producer.produce(journal_topic(group_id), key=key.encode(), value=value, on_delivery=on_delivery)
    left = producer.flush(CALL_TIMEOUT_SECONDS)
    what = f"writing to topic {journal_topic(group_id)}"
    if failures:
        needs = {Resource.TOPIC: (journal_topic(group_id), (Operation.WRITE, Operation.DESCRIBE))}
        raise explain(failures[0], what, settings, client_errors, needs)
    if left:
        raise UnreachableError(
            f"The Kafka cluster at {settings.bootstrap_servers} did not answer ({what}): "
            f"{client_errors.last or 'no answer in time'}.",
            remedy="Make the broker answer and try again.",
        )
    return appended[0]


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
