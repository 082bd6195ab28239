"""Fetches records through librdkafka, which also decodes them: millions in seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import is_not, itemgetter
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import NOT_KNOWN, AssignedConsumer
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.questions import not_allowed
from airflow_eos_provider.kafka.read.fetched import NO_LOOK, FetchOptions, LogRecord, Look

#: Records handed over at once, at most. Larger batches fall out of the processor's cache and are slower.
_BATCH = 500

#: How long the question may take that wakes the client, seconds; without it the client wakes by itself after a second.
_WAKE_SECONDS = 1.0

#: For how long librdkafka stops fetching once enough records wait for us, milliseconds. Its default, a second, is what
#: a large topic's read would mostly consist of: 2 million small records took 13 s, and 2 s with this.
_FETCH_BACKOFF_MS = 10

_SECOND = itemgetter(1)


def lent_consumer(session: Session, options: FetchOptions) -> contextlib.AbstractContextManager[AssignedConsumer]:
    """A session's consumer for such fetches."""
    return session.consumer(
        isolation_level=options.isolation,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
        fetch_wait_max_ms=options.fetch_wait_ms,
        fetch_queue_backoff_ms=_FETCH_BACKOFF_MS,
    )


class LibrdkafkaFetcher:
    """See :class:`~airflow_eos_provider.kafka.read.fetched.Fetcher`.

    :param consumer: one of :func:`lent_consumer`.
    """

    def __init__(self, session: Session, consumer: AssignedConsumer, topic: str, options: FetchOptions) -> None:
        self._session = session
        self._consumer = consumer.client
        self._errors = consumer.client_errors
        self._topic = topic
        self._headers = options.headers

    @property
    def trouble(self) -> str | None:
        return self._errors.last

    @property
    def is_refused(self) -> bool:
        return self._errors.refused

    def moved(self, moved: bool) -> None:
        if moved:
            self._errors.served()
        else:
            self._errors.clear()

    def assign(self, positions: Mapping[int, int]) -> None:
        places = [TopicPartition(self._topic, p, position) for p, position in sorted(positions.items())]
        self._consumer.assign(places)
        self._consumer.resume(places)  # or else partitions that reached an earlier end stay paused
        self._wake(places)

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def _wake(self, places: list[TopicPartition]) -> None:
        """Let the consumer begin to fetch now.

        librdkafka's thread of a broker, if it has nothing to do, sees a new assignment up to a second late. A question
        to the partitions' leaders wakes it; what they answer is not needed.
        """
        ends = [TopicPartition(place.topic, place.partition, OFFSET_END) for place in places]
        with contextlib.suppress(KafkaException):
            self._consumer.offsets_for_times(ends, timeout=_WAKE_SECONDS)

    def look(self, seconds: float) -> Look:
        """Wait for one event, then take what else is there; ``consume`` alone would wait for a whole batch."""
        first = self._consumer.poll(seconds)
        if first is None:
            return NO_LOOK
        messages = [first, *self._consumer.consume(num_messages=_BATCH, timeout=0)]
        # This is what a large topic's read costs, so no step of Python is done once a record: twice as fast as a loop.
        errors = list(map(Message.error, messages))
        stopped: dict[int, int] = {}
        if any(map(is_not, errors, repeat(None))):
            for message, error in zip(messages, errors, strict=True):
                if error is not None:
                    self._take_event(message, error, stopped)
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        return self._records(messages, stopped)

    def _records(self, messages: Sequence[Message], stopped: Mapping[int, int]) -> Look:
        partitions: list[Any] = list(map(Message.partition, messages))
        offsets: list[Any] = list(map(Message.offset, messages))
        stamps = map(_SECOND, map(Message.timestamp, messages))
        keys, values = map(Message.key, messages), map(Message.value, messages)
        headers: Iterable[Any] = map(Message.headers, messages) if self._headers else repeat(None)
        fields = zip(repeat(self._topic), partitions, offsets, stamps, keys, values, headers, strict=False)
        records: list[LogRecord] = list(map(tuple.__new__, repeat(LogRecord), fields))
        last = dict(zip(partitions, offsets, strict=True))  # of each partition, for they ascend
        return Look(records, {partition: offset + 1 for partition, offset in last.items()}, stopped, True)

    def _take_event(self, message: Message, error: KafkaError, stopped: dict[int, int]) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # The offset of this event is the position after all markers, aborted and compacted records, which no
            # message reports. Under read_committed it may be the last stable offset, short of the end.
            partition: Any = message.partition()
            offset: Any = message.offset()
            stopped[partition] = offset
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            needed = (Operation.READ, Operation.DESCRIBE)
            what = f"reading topic {self._topic}"
            raise not_allowed(self._session.settings, what, needed, Resource.TOPIC, self._topic)
        elif error.code() in NOT_KNOWN:
            raise EosError(f"The topic {self._topic} went away while it was read.")
        # Anything else is news of the coordinator (we have no group, so no right to it is needed) or of a broker that
        # librdkafka will try again; the deadline bounds that.
