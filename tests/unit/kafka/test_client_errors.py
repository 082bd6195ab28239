"""What librdkafka reports in the background, and how long it explains later errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.producer import Limits, TransactionalProducer

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "invalid credentials")
AWAY = KafkaError(KafkaError._TIMED_OUT, "the coordinator does not answer")


class Coordinator:
    """Stands in for librdkafka's producer: one is refused and then served only where its login is renewed."""

    def __init__(self) -> None:
        self.answers: list[KafkaError | None] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def init_transactions(self, timeout: float) -> None:
        if (error := self.answers.pop(0)) is not None:
            raise KafkaException(error)

    def poll(self, timeout: float) -> int:
        return 0


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> TransactionalProducer:
    settings = KafkaSettings({"bootstrap.servers": "127.0.0.1:1"})
    limits = Limits(init=0.1, commit=0.1, abort=0.1)
    made = TransactionalProducer(settings, "id", timeout_ms=1000, known_topic="topic", limits=limits)
    monkeypatch.setattr(made, "_producer", Coordinator())
    return made


def test_a_refusal_explains_the_time_out_that_follows_it(producer: TransactionalProducer) -> None:
    producer._client_errors(REFUSED)
    producer._producer.answers = [AWAY]
    with pytest.raises(ConfigurationError, match="invalid credentials"):
        producer.init()


def test_a_refusal_explains_nothing_once_a_broker_has_served(producer: TransactionalProducer) -> None:
    producer._client_errors(REFUSED)
    producer._producer.answers = [None, AWAY]
    producer.init()
    with pytest.raises(UnreachableError, match="does not answer"):
        producer.init()
