"""The journal's transactions: each is committed, aborted or unsettled.

A transaction that failed and was aborted is written again: a broker may have been unavailable. The caller initialises,
which fences.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, UnreachableError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.producer import Limits, TransactionalProducer

#: An open journal transaction holds up every reader of the journal, so it may not live long.
TRANSACTION_TIMEOUT_MS = 15_000

#: A transaction is tried for so long, seconds.
WRITE_SECONDS = 20.0
_LIMITS = Limits(init=WRITE_SECONDS, commit=WRITE_SECONDS, abort=10.0)

_PAUSE_SECONDS = 0.2


class UnsettledError(EosError):
    """Whether a transaction took effect is not known, and its producer can write no more; only reading shows it."""


class JournalTransactions:
    """Writes to one topic, as long as no other producer fences it.

    :param transactional_id: who has initialised this id last may write.
    """

    def __init__(self, settings: KafkaSettings, topic: str, transactional_id: str) -> None:
        self._settings = settings
        self._topic = topic
        self._transactional_id = transactional_id
        self._producer: TransactionalProducer | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a producer to write with."""
        return self._producer is not None

    def close(self) -> None:
        """Drop the producer; the broker aborts what it may have left open."""
        self._producer = None

    def init(self) -> None:
        """Take the id: whoever had it is fenced, and what it had left open is aborted."""
        producer = TransactionalProducer(
            self._settings,
            self._transactional_id,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            limits=_LIMITS,
        )
        try:
            producer.init()
        except FencedError:
            self.close()
            raise
        except EosError as error:
            raise self._not_written(error) from error
        self._producer = producer

    def write(self, records: Mapping[str, bytes | None]) -> int:
        """Write these records, all or none.

        :returns: the broker's time of the last of them, milliseconds since the epoch.
        :raises UnsettledError: it is not known whether they were written.
        """
        deadline = time.monotonic() + WRITE_SECONDS
        while True:
            producer = self._require_producer()
            try:
                producer.begin()
                for key, value in records.items():
                    producer.produce(self._topic, key.encode(), value)
                producer.commit(deadline - time.monotonic())
            except EosError as error:
                self._require_aborted(producer, error)
                if isinstance(error, ConfigurationError) or time.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise self._not_written(error) from error
                time.sleep(_PAUSE_SECONDS)
            else:
                return producer.last_timestamp_ms

    def _require_aborted(self, producer: TransactionalProducer, error: EosError) -> None:
        """Go on only if nothing of the transaction that has failed takes effect; else give the producer up."""
        for reason in (error, producer.unsettled):
            if isinstance(reason, FencedError):
                self.close()
                raise reason
        if producer.unsettled is not None:
            self.close()
            raise UnsettledError(
                f"eos cannot tell whether a record of {self._topic} was written. {error.found} "
                f"It could not be aborted: {producer.unsettled.found}"
            ) from error

    def _require_producer(self) -> TransactionalProducer:
        if self._producer is None:
            raise UnsettledError(f"Nothing can be written to {self._topic}: its producer was given up.")
        return self._producer

    def _not_written(self, error: EosError) -> EosError:
        found = f"The journal {self._topic} cannot be written: {error.found}"
        if isinstance(error, ConfigurationError):  # the brokers answer: a right is missing, or the topic
            return ConfigurationError(found, expected=error.expected, remedy=error.remedy)
        return UnreachableError(
            found,
            remedy="A step that cannot be announced is not done; make the broker answer and try again.",
        )
