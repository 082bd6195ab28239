"""What a transaction of the journal comes to when a call of the client fails.

The client is scripted: no broker gives these answers when asked to. Slow, fenced and killed real ones are in
tests/faults/test_two_controllers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.journal import transactions
from airflow_eos_provider.journal.transactions import JournalTransactions, UnsettledError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write import producer

SLOW = KafkaError(KafkaError._TIMED_OUT, "no answer yet", retriable=True)
LOST = KafkaError(KafkaError._MSG_TIMED_OUT, "no answer", txn_requires_abort=True)
UNKNOWN = KafkaError(KafkaError.UNKNOWN, "unknown server error", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
CONFLICT = KafkaError(KafkaError._CONFLICT, "commit_transaction is in progress", retriable=True)
STATE = KafkaError(KafkaError._STATE, "not in a transaction")
LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")

APPENDED_AT_MS = 5_000


class Client:
    """librdkafka's calls, each answered by the next of its errors, and by nothing when there are no more."""

    def __init__(self, **errors: list[KafkaError]) -> None:
        self.errors = errors
        self.calls: list[str] = []

    def _call(self, name: str, *_: Any, **__: Any) -> None:
        self.calls.append(name)
        if self.errors.get(name):
            raise KafkaException(self.errors[name].pop(0))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self._call(name, *given, **named)

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self._call("produce")
        self.delivered = lambda: on_delivery(None, SimpleNamespace(offset=lambda: 7, timestamp=lambda: (2, 5_000)))

    def commit_transaction(self, _: float) -> None:
        self._call("commit_transaction")
        self.delivered()

    @property
    def story(self) -> list[str]:
        """The calls that matter, without those of taking the id."""
        return [call.removesuffix("_transaction") for call in self.calls if call.endswith("_transaction")]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], Any]:
    """Writes a record by a client; returns the broker's time of it, or the error with whether it can write again."""
    monkeypatch.setattr(producer, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(transactions, "_PAUSE_SECONDS", 0.0)

    def written(client: Client) -> Any:
        monkeypatch.setattr(producer, "quiet_producer", lambda *_, **__: client)
        journal = JournalTransactions(KafkaSettings.of("127.0.0.1:1"), "eos-rollout-lab", "eos-rollout-lab")
        journal.init()
        try:
            return journal.write({"lease": b"1"})
        except EosError as error:
            return type(error), journal.is_open

    return written


def test_a_commit_that_only_takes_time_is_repeated_in_the_same_transaction(write: Any) -> None:
    client = Client(commit_transaction=[SLOW, SLOW])
    assert write(client) == APPENDED_AT_MS
    assert client.story == ["begin", "commit", "commit", "commit"]


def test_what_is_known_to_be_aborted_is_written_again(write: Any) -> None:
    client = Client(commit_transaction=[LOST, UNKNOWN], abort_transaction=[SLOW])
    assert write(client) == APPENDED_AT_MS
    assert client.story == ["begin", "commit", "abort", "abort", "begin", "commit", "abort", "begin", "commit"]


def test_what_would_be_refused_again_is_not(write: Any) -> None:
    client = Client(produce=[LARGE])
    assert write(client) == (ConfigurationError, True)
    assert client.story == ["begin", "abort"]


@pytest.mark.parametrize(
    ("call", "code", "right"),
    [
        ("init_transactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "Write on TransactionalId"),
        ("init_transactions", "CLUSTER_AUTHORIZATION_FAILED", "IdempotentWrite on Cluster"),
        ("produce", "TOPIC_AUTHORIZATION_FAILED", "Write on Topic"),
    ],
)
def test_a_missing_right_is_named_with_the_command_that_grants_it(
    monkeypatch: pytest.MonkeyPatch, call: str, code: str, right: str
) -> None:
    client = Client(**{call: [KafkaError(getattr(KafkaError, code), "refused")]})
    monkeypatch.setattr(producer, "quiet_producer", lambda *_, **__: client)
    journal = JournalTransactions(KafkaSettings.of("127.0.0.1:1"), "eos-rollout-lab", "eos-rollout-lab")

    def written() -> None:
        journal.init()
        journal.write({"lease": b"1"})

    with pytest.raises(ConfigurationError, match=f"refused User:ANONYMOUS .*: {right}") as refused:
        written()
    command = "kafka-acls --bootstrap-server 127.0.0.1:1 --add --allow-principal User:ANONYMOUS --operation "
    assert command in str(refused.value.remedy)


@pytest.mark.parametrize(
    "errors",
    [
        {"commit_transaction": [FENCED], "abort_transaction": [FENCED]},
        {"commit_transaction": [UNKNOWN], "abort_transaction": [FENCED]},
        {"begin_transaction": [FENCED], "abort_transaction": [FENCED]},
    ],
    ids=["at the commit", "at the abort", "at the beginning"],
)
def test_who_is_fenced_writes_no_more(write: Any, errors: dict[str, list[KafkaError]]) -> None:
    assert write(Client(**errors)) == (FencedError, False)


@pytest.mark.parametrize("step", ["begin_transaction", "commit_transaction"])
def test_what_cannot_be_aborted_is_unsettled(write: Any, step: str) -> None:
    client = Client(**{step: [UNKNOWN], "abort_transaction": [STATE]})
    assert write(client) == (UnsettledError, False)
    assert client.story.count("begin") == 1


def test_a_transaction_that_the_broker_has_ended_for_its_age_is_unsettled_and_not_fenced(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answer is the same, and taking it for a fencing would end a roll that nobody has taken over."""
    monkeypatch.setattr(transactions, "TRANSACTION_TIMEOUT_MS", 0)
    assert write(Client(commit_transaction=[FENCED], abort_transaction=[FENCED])) == (UnsettledError, False)


def test_an_abort_that_librdkafka_takes_for_a_second_call_beside_the_commit_is_not_repeated(write: Any) -> None:
    """It answers so, and for ever, where the commit was given up."""
    client = Client(commit_transaction=[LOST], abort_transaction=[CONFLICT] * 3)
    assert write(client) == (UnsettledError, False)
    assert client.story == ["begin", "commit", "abort"]


def test_after_a_fatal_error_the_client_is_asked_nothing_more(write: Any) -> None:
    client = Client(commit_transaction=[FENCED])
    assert write(client) == (FencedError, False)
    assert client.calls[-1] == "commit_transaction"
