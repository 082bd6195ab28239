"""Committed records with their headers, from a topic's beginning to its end.

:mod:`airflow_eos_provider.kafka.log` reads ledgers of millions of records and leaves headers out, which cost as much as
all the rest; a verification needs them, for they are part of a record's digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from airflow_eos_provider.errors import ConfigurationError, ReadTimeoutError
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, Complaints, QuietAdmin, explain, quiet_consumer
from airflow_eos_provider.kafka.config import KafkaSettings

#: Called with topic, offsets passed and offsets in all.
Progress = Callable[[str, int, int], None]

#: Without news for so long, a reader at the stable end is waiting for an open transaction, seconds.
PATIENCE_SECONDS = 60.0

_BATCH = 2000
_LOOK_SECONDS = 0.2


def drain(settings: KafkaSettings, topic: str, take: Callable[[Message], None], progress: Progress) -> None:
    """Hand over every committed record before the uncommitted end of this moment.

    :raises ConfigurationError: there is no such topic, or it may not be read.
    :raises ReadTimeoutError: there was no news for :data:`PATIENCE_SECONDS`, mostly for an open transaction.
    """
    ends = _ends(settings, topic)
    complaints = Complaints()
    consumer = quiet_consumer(
        settings,
        complaints,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
    )
    positions = dict.fromkeys(ends, 0)
    total = sum(ends.values())
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        news_at = time.monotonic()
        while any(positions[partition] < end for partition, end in ends.items()):
            for message in consumer.consume(num_messages=_BATCH, timeout=_LOOK_SECONDS):
                before = positions.get(message.partition() or 0, 0)
                position = _take(settings, message, ends, take)
                if position > before:
                    positions[message.partition() or 0] = position
                    news_at = time.monotonic()
            progress(topic, min(sum(positions.values()), total), total)
            if time.monotonic() - news_at > PATIENCE_SECONDS:
                raise ReadTimeoutError(
                    f"Topic {topic} had no news for {PATIENCE_SECONDS:.0f} s before its end: {complaints.last or ''}",
                    remedy="An open transaction probably holds back its readers; try again when it has ended.",
                )
    finally:
        consumer.close()


def _take(settings: KafkaSettings, message: Message, ends: dict[int, int], take: Callable[[Message], None]) -> int:
    """Look at one event.

    :returns: the position that it tells of.
    """
    error = message.error()
    offset = message.offset() or 0
    if error is None:
        if offset < ends[message.partition() or 0]:  # later ones came after the end was asked for
            take(message)
        return offset + 1
    if error.code() == KafkaError._PARTITION_EOF:  # tells the position behind markers and aborted records
        return offset
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise explain(error, f"reading topic {message.topic()}", settings)
    return 0  # news of a broker that librdkafka will try again


def _ends(settings: KafkaSettings, topic: str) -> dict[int, int]:
    admin = QuietAdmin(settings)
    (future,) = admin.client.describe_topics(TopicCollection([topic]), request_timeout=CONNECT_SECONDS).values()
    try:
        partitions = [TopicPartition(topic, partition.id) for partition in future.result().partitions]
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise ConfigurationError(
                f"There is no topic {topic} on the Kafka cluster at {settings.bootstrap_servers}.",
                remedy="Check the name; a topic that one may not describe looks absent.",
            ) from error
        raise admin.explain(error, f"describing topic {topic}") from error
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    answers = admin.client.list_offsets(
        dict.fromkeys(partitions, latest),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=CONNECT_SECONDS,
    )
    return {tp.partition: int(admin.answer(f, f"listing the ends of {topic}").offset) for tp, f in answers.items()}
