from __future__ import annotations

from itertools import count
from typing import Any

from airflow_eos_provider.interval.protocol.next_producer import NextProducer


def test_a_producer_is_opened_early_or_when_it_is_taken_and_taken_once() -> None:
    opened = []

    def open_producer() -> Any:
        opened.append(next(numbers))
        return f"producer {opened[-1]}"

    numbers = count(1)
    following: Any = NextProducer(open_producer)
    assert opened == [], "what is not needed does not connect"
    following.open()
    assert opened == [1]
    assert following.take() == "producer 1"
    assert opened == [1]
    assert following.take() == "producer 2"
