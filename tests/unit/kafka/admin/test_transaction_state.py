"""States of transactions: which of them a reader may still wait for, and those of newer brokers."""

from __future__ import annotations

import pickle

import pytest

from airflow_eos_provider.kafka.admin.transaction_state import TransactionState


@pytest.mark.parametrize("word", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "of a newer broker"])
def test_a_transaction_is_open_until_its_markers_are_everywhere(word: str) -> None:
    assert TransactionState(word).is_open


@pytest.mark.parametrize("word", ["Empty", "CompleteCommit", "CompleteAbort", "Dead"])
def test_a_transaction_that_has_ended_is_not(word: str) -> None:
    assert not TransactionState(word).is_open


def test_a_state_of_a_newer_broker_keeps_its_name() -> None:
    state = TransactionState("Suspended")
    assert (state.name, f"{state}", state == TransactionState("Suspended")) == ("UNKNOWN", "Suspended", True)
    assert state != TransactionState("Frozen")
    assert pickle.loads(pickle.dumps(state)) == state
    assert "Suspended" not in [str(known) for known in TransactionState]
