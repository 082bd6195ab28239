"""Begins and ends of a topic, while brokers hang or leaders move."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.clients import MOVED, NOT_KNOWN, QuietAdmin
from airflow_eos_provider.kafka.read.ends import Ends, Reach, UnknownTopicError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


class Described:
    topic_id = "id"
    partitions = (type("Partition", (), {"id": 0}), type("Partition", (), {"id": 1}))


class Listed:
    offset = 7


class Broker:
    """Answers as given, one answer a question; the last one stays."""

    def __init__(self, describes: list[Any], lists: list[dict[int, Any]]) -> None:
        self.describes, self.lists = describes, lists
        self.asked: list[str] = []

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked.append("describe")
        return {"t": answered(self.describes.pop(0) if len(self.describes) > 1 else self.describes[0])}

    def list_offsets(self, partitions: Any, **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append("list " + " ".join(str(tp.partition) for tp in partitions))
        answers = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return {tp: answered(answers[tp.partition]) for tp in partitions}

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append("leaders")

    def poll(self, timeout: float) -> None:
        pass


def answered(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future


def ends_of(broker: Broker, limit: float = 1.0) -> Ends:
    admin = QuietAdmin(KafkaSettings.of("127.0.0.1:1"))
    admin.client = broker  # type: ignore[assignment]
    return Ends(admin, "t", Reach(), limit)


def test_a_cluster_that_hangs_is_told() -> None:
    broker = Broker([KafkaError._TIMED_OUT], [])
    with pytest.raises(UnreachableError, match="describing topic t"):
        ends_of(broker)
    assert broker.asked == ["describe"], "and then a consumer, which finds nobody either"


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_a_leader_that_moves_is_followed(code: int) -> None:
    broker = Broker([Described], [{0: Listed, 1: code}, {1: Listed}])
    assert ends_of(broker).now() == {0: 7, 1: 7}
    assert broker.asked == ["describe", "list 0 1", "leaders", "list 1"]


@pytest.mark.parametrize("code", NOT_KNOWN)
def test_a_broker_that_has_not_heard_of_the_topic_yet_is_asked_again(code: int) -> None:
    broker = Broker([Described], [{0: code, 1: Listed}, {0: code}, {0: Listed}])
    assert ends_of(broker, limit=60).beginnings() == {0: 7, 1: 7}
    # Not by its name, for which a broker would make the topic if it was deleted meanwhile.
    assert broker.asked == ["describe", "list 0 1", "list 0", "list 0"]


def test_a_topic_that_is_deleted_meanwhile_is_unknown() -> None:
    broker = Broker([Described, KafkaError.UNKNOWN_TOPIC_OR_PART], [{0: Listed, 1: KafkaError.UNKNOWN_TOPIC_OR_PART}])
    with pytest.raises(UnknownTopicError):
        ends_of(broker, limit=0.3).now()


def test_a_broker_that_never_hears_of_the_topic_is_told() -> None:
    broker = Broker([Described], [{0: Listed, 1: KafkaError.UNKNOWN_TOPIC_OR_PART}])
    with pytest.raises(UnreachableError, match=r"Not every broker .* knows topic t"):
        ends_of(broker, limit=0.3).now()


@pytest.mark.parametrize("code", MOVED)
def test_a_leader_that_does_not_come_is_told(code: int) -> None:
    broker = Broker([Described], [{0: Listed, 1: code}])
    with pytest.raises(UnreachableError, match="listing the end offsets"):
        ends_of(broker, limit=0.3).now()


def test_another_error_is_told_at_once() -> None:
    broker = Broker([Described], [{0: Listed, 1: KafkaError.INVALID_REQUEST}])
    with pytest.raises(EosError, match="listing the end offsets"):
        ends_of(broker).now()
    assert "leaders" not in broker.asked
