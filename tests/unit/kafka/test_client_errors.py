"""What librdkafka reports in the background, and how long it explains later errors."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka import clients
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import ClientErrors, QuietAdmin, explain
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.producer import Limits, TransactionalProducer

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "invalid credentials")
AWAY = KafkaError(KafkaError._TIMED_OUT, "the coordinator does not answer")


CODES = sorted(
    {
        code
        for name in dir(KafkaError)
        if isinstance(code := getattr(KafkaError, name), int) and not isinstance(code, bool)
    }
)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "needs", [{}, {resource: ("x", [Operation.READ]) for resource in Resource}], ids=["without", "with needs"]
)
def test_every_answer_of_a_broker_is_an_error_of_ours(
    code: int, needs: dict[Resource, tuple[str, list[Operation]]]
) -> None:
    found = explain(KafkaError(code, "\x1b[2J"), "asking", KafkaSettings.of("127.0.0.1:1"), ClientErrors(), needs)
    assert "\x1b" not in str(found)
    assert found.exit_code in (1, 2, 6)
    if code in clients._NOT_ALLOWED:
        assert isinstance(found, ConfigurationError)
        assert ("kafka-acls" in str(found.remedy)) is bool(needs)


class Coordinator:
    """Stands in for librdkafka's producer: one is refused and then served only where its login is renewed."""

    def __init__(self) -> None:
        self.answers: list[KafkaError | None] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def init_transactions(self, timeout: float) -> None:
        if (error := self.answers.pop(0)) is not None:
            raise KafkaException(error)

    def flush(self, timeout: float) -> int:
        return 0

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


def test_a_refusal_explains_nothing_once_the_records_are_with_the_brokers(producer: TransactionalProducer) -> None:
    producer._client_errors(REFUSED)
    producer.flush()
    producer._producer.answers = [AWAY]
    with pytest.raises(UnreachableError, match="does not answer"):
        producer.init()


def test_a_refusal_of_long_ago_explains_nothing(
    producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer._client_errors(REFUSED)
    producer._client_errors.clear()  # as a session does between two questions
    later = time.monotonic() + 600
    monkeypatch.setattr("airflow_eos_provider.kafka.clients.time.monotonic", lambda: later)
    producer._producer.answers = [AWAY]
    monkeypatch.setattr(producer, "_limits", Limits(init=0, commit=0, abort=0))
    with pytest.raises(UnreachableError, match="does not answer"):
        producer.init()


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.UNKNOWN])
def test_a_refusal_does_not_explain_what_a_broker_has_answered(producer: TransactionalProducer, code: int) -> None:
    """It was let in by then."""
    producer._client_errors(REFUSED)
    producer._producer.answers = [KafkaError(code, "try again")]
    with pytest.raises(EosError, match="answered with an error") as raised:
        producer.init()
    assert not isinstance(raised.value, ConfigurationError)


def test_an_answer_to_an_admin_ends_what_was_refused_before() -> None:
    admin = QuietAdmin(KafkaSettings({"bootstrap.servers": "127.0.0.1:1"}))
    admin.client_errors(REFUSED)
    answered: Future[int] = Future()
    answered.set_result(7)
    assert admin.answer(answered, "asking") == 7
    assert not admin.client_errors.refused


@pytest.mark.parametrize("name", ["acks", "request.required.acks", "enable.idempotence", "partitioner"])
def test_shared_settings_do_not_decide_what_a_transaction_rests_on(name: str) -> None:
    """A connection is shared with producers that need less; ours take what they need."""
    settings = KafkaSettings.of("127.0.0.1:1", {name: {"partitioner": "random"}.get(name, "0")})
    assert not TransactionalProducer(settings, "t", timeout_ms=9_000, known_topic="x").is_open


def test_settings_that_no_client_takes_are_corrected_where_they_are_written() -> None:
    with pytest.raises(ConfigurationError, match="kafka connection"):
        TransactionalProducer(KafkaSettings.of("127.0.0.1:1", {"retries": "0"}), "t", timeout_ms=9_000, known_topic="x")
