"""What a transaction of the journal comes to when a call of the client fails.

The brokers are scripted: no broker gives these answers when asked to. Slow, fenced and killed real ones are in
tests/faults/test_two_controllers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.journal import journal_transactions
from airflow_eos_provider.journal.journal_transactions import JournalTransactions, UnsettledError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write import producer
from tests.unit.kafka.scripted_wire import APPENDED_AT_MS, ScriptedWire

SLOW = kafka.errors.ConcurrentTransactionsError.errno
LOST = kafka.errors.KafkaConnectionError("no answer")
UNKNOWN = kafka.errors.UnknownError.errno
FENCED = kafka.errors.ProducerFencedError.errno
ENDED = kafka.errors.InvalidTxnStateError.errno
LARGE = kafka.errors.MessageSizeTooLargeError.errno


def story(brokers: ScriptedWire) -> list[str]:
    """The requests that matter, without those of taking the id."""
    return [name for name in brokers.story if name in ("Produce", "EndTxn")]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedWire], Any]:
    """Writes a record; returns the broker's time of it, or the error with whether it can write again."""
    monkeypatch.setattr(journal_transactions, "_PAUSE_SECONDS", 0.0)

    def written(brokers: ScriptedWire) -> Any:
        monkeypatch.setattr(producer, "Wire", lambda *_, **__: brokers)
        journal = JournalTransactions(KafkaSettings.of("127.0.0.1:1"), "eos-rollout-lab", "eos-rollout-lab")
        journal.init()
        try:
            return journal.write({"lease": b"1"})
        except EosError as error:
            return type(error), journal.is_open

    return written


def test_a_commit_that_only_takes_time_is_repeated_in_the_same_transaction(write: Any) -> None:
    brokers = ScriptedWire(EndTxn=[SLOW, LOST])
    assert write(brokers) == APPENDED_AT_MS
    assert story(brokers) == ["Produce", "EndTxn", "EndTxn", "EndTxn"]


def test_what_is_known_to_be_aborted_is_written_again(write: Any) -> None:
    brokers = ScriptedWire(EndTxn=[UNKNOWN, SLOW, 0, UNKNOWN])
    assert write(brokers) == APPENDED_AT_MS
    aborted = ["Produce", "EndTxn", "EndTxn"]
    assert story(brokers) == [*aborted, "EndTxn", *aborted, "Produce", "EndTxn"]


def test_what_would_be_refused_again_is_not(write: Any) -> None:
    brokers = ScriptedWire(Produce=[LARGE])
    assert write(brokers) == (ConfigurationError, True)
    assert story(brokers) == ["Produce", "EndTxn"]


def test_a_missing_right_is_named_with_the_command_that_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = ScriptedWire(Produce=[kafka.errors.TopicAuthorizationFailedError.errno])
    monkeypatch.setattr(producer, "Wire", lambda *_, **__: brokers)
    journal = JournalTransactions(KafkaSettings.of("127.0.0.1:1"), "eos-rollout-lab", "eos-rollout-lab")
    journal.init()
    with pytest.raises(ConfigurationError, match=r"refused User:ANONYMOUS .*: Write on Topic") as refused:
        journal.write({"lease": b"1"})
    command = "kafka-acls --bootstrap-server 127.0.0.1:1 --add --allow-principal User:ANONYMOUS --operation "
    assert command in str(refused.value.remedy)


@pytest.mark.parametrize(
    "answers",
    [
        {"EndTxn": [FENCED, FENCED]},
        {"EndTxn": [UNKNOWN, FENCED]},
        {"AddPartitionsToTxn": [FENCED], "EndTxn": [FENCED]},
        {"Produce": [UNKNOWN], "InitProducerId": [0, FENCED]},
    ],
    ids=["at the commit", "at the abort", "at the beginning", "at the next beginning"],
)
def test_who_is_fenced_writes_no_more(write: Any, answers: dict[str, Any]) -> None:
    assert write(ScriptedWire(**answers)) == (FencedError, False)


def test_what_cannot_be_aborted_is_unsettled(write: Any) -> None:
    brokers = ScriptedWire(EndTxn=[UNKNOWN, ENDED])
    assert write(brokers) == (UnsettledError, False)
    assert story(brokers) == ["Produce", "EndTxn", "EndTxn"]


def test_a_transaction_that_the_broker_has_ended_for_its_age_is_unsettled_and_not_fenced(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answer is the same, and taking it for a fencing would end a roll that nobody has taken over."""
    monkeypatch.setattr(journal_transactions, "TRANSACTION_TIMEOUT_MS", 0)
    assert write(ScriptedWire(EndTxn=[FENCED, FENCED])) == (UnsettledError, False)
