"""Fetches whose answers are not records; what comes of records is in tests/integration/test_reading.py."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.admin import client
from airflow_eos_provider.kafka.admin.client import Admin, Place
from airflow_eos_provider.kafka.read import wire_fetcher
from airflow_eos_provider.kafka.read.fetched import NO_LOOK, FetchOptions
from airflow_eos_provider.kafka.read.topic_ends import ReplacedTopicError
from airflow_eos_provider.kafka.read.wire_fetcher import WireFetcher, _Fetched
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


class Broker(Admin):
    """Answers each fetch of partition 0 with the same error code.

    :param begins: where the partition begins.
    """

    def __init__(self, code: int = 0, *, begins: int = 0, stable: int = 0) -> None:
        self.settings = KafkaSettings.of("127.0.0.1:1")
        self.wire: Any = None
        self.answer = SimpleNamespace(
            error_code=code, records=b"", aborted_transactions=None, last_stable_offset=stable, high_watermark=9
        )
        self.begins = begins

    def run(self, what: str, act: Any, *_: Any) -> Any:
        return {0: _Fetched(5, self.answer)}

    def offsets(self, places: Collection[Place], *_: Any, **__: Any) -> Any:
        return dict.fromkeys(places, self.begins)


def fetcher(broker: Broker, position: int = 5) -> WireFetcher:
    made = WireFetcher(broker, "t", None, FetchOptions("read_committed", False, 10))
    made.assign({0: position})
    return made


def test_a_stable_end_is_told() -> None:
    assert fetcher(Broker(stable=5)).look(1.0).stopped == {0: 5}
    assert fetcher(Broker(stable=6)).look(1.0) == NO_LOOK


def test_an_answer_to_an_earlier_question_is_passed_over() -> None:
    assert fetcher(Broker(stable=5), position=4).look(1.0) == NO_LOOK
    paused = fetcher(Broker(stable=5))
    paused.assign({0: 5, 1: 0})
    paused.pause(0)
    assert paused.look(1.0) == NO_LOOK


def test_deleted_records_are_passed_over() -> None:
    look = fetcher(Broker(kafka.errors.OffsetOutOfRangeError.errno, begins=7)).look(1.0)
    assert (look.reached, look.stopped, look.answered) == ({0: 7}, {}, True)


def test_a_partition_that_ends_before_the_position_is_not_read_again() -> None:
    with pytest.raises(ReplacedTopicError, match=r"Partition 0 of topic t ends before offset 5"):
        fetcher(Broker(kafka.errors.OffsetOutOfRangeError.errno, begins=5)).look(1.0)


def test_a_right_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)Read on Topic t.*Describe.*--topic t"):
        fetcher(Broker(kafka.errors.TopicAuthorizationFailedError.errno)).look(1.0)


@pytest.mark.parametrize("code", [error.errno for error in client._NOT_KNOWN])
def test_a_topic_that_is_not_known_for_long_went_away(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fetcher(Broker(code))
    assert asked.look(1.0) == NO_LOOK
    assert asked.look(1.0) == NO_LOOK
    assert asked.trouble is not None
    monkeypatch.setattr(wire_fetcher, "_NEWS_SECONDS", -1.0)
    with pytest.raises(EosError, match="went away while it was read"):
        asked.look(1.0)


def test_a_leader_that_moves_is_asked_for_again_and_another_error_is_told() -> None:
    asked = fetcher(Broker(kafka.errors.NotLeaderForPartitionError.errno))
    assert asked.look(1.0) == NO_LOOK
    assert "NotLeaderForPartition" in (asked.trouble or "")
    with pytest.raises(EosError, match="reading topic t"):
        fetcher(Broker(kafka.errors.CorruptRecordError.errno)).look(1.0)
