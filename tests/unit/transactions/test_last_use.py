"""When an id was last used, by the records of its coordinator's log."""

from __future__ import annotations

import pytest

from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.transactions.last_use import uses


def record(key: bytes | None, at: float, value: bytes | None = b"v") -> LogRecord:
    return LogRecord("__transaction_state", 3, 0, int(at * 1000), key, value)


ORDERS = b"\x00\x00\x00\x0aa-orders-0"


def test_the_last_record_of_an_id_says_when_it_was_used() -> None:
    records = [record(ORDERS, 5), record(b"\x00\x00\x00\x01b", 9), record(ORDERS, 7), record(None, 8)]
    assert uses(records, ["a-orders-0", "c"]) == {"a-orders-0": 7.0}


@pytest.mark.parametrize(
    "other", [record(ORDERS, 9, None), record(b"\x00\x01" + ORDERS[2:], 9), record(b"a-orders-0", 9)]
)
def test_a_forgotten_id_and_a_key_of_another_form_are_no_use(other: LogRecord) -> None:
    assert uses([other], ["a-orders-0"]) == {}
