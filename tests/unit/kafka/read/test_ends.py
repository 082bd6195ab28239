"""Begins and ends of a topic, while brokers hang or leaders move."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Answer
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.read.topic_ends import Ends, Reach, UnknownTopicError
from tests.unit.kafka.scripted_admin import ScriptedAdmin

UNKNOWN = kafka.errors.UnknownTopicOrPartitionError.errno
MOVED = [
    kafka.errors.NotLeaderForPartitionError.errno,
    kafka.errors.LeaderNotAvailableError.errno,
    kafka.errors.FencedLeaderEpochError.errno,
    kafka.errors.UnknownLeaderEpochError.errno,
    kafka.errors.OffsetNotAvailableError.errno,
    kafka.errors.ReplicaNotAvailableError.errno,
]

Broker = Callable[..., ScriptedAdmin]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Answers as given, one answer a question; the last one stays.

    Descriptions are the topic's error codes; lists have by partition an error code, 0 for an offset.
    """

    def broker(describes: list[Any], lists: list[dict[int, int]]) -> ScriptedAdmin:
        def answer(kind: str, request: Any) -> Any:
            answers: Any = describes if kind == "Metadata" else lists
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(found, Exception):
                return found
            if kind == "Metadata":
                partitions = [Answer(partition_index=number, leader_id=1, replica_nodes=[1]) for number in (0, 1)]
                return Answer(topics=[Answer(name="t", error_code=found, topic_id=None, partitions=partitions)])
            (topic,) = request.topics
            wanted = [each.partition_index for each in topic.partitions]
            asked = [Answer(partition_index=number, error_code=found[number], offset=7) for number in wanted]
            return Answer(topics=[Answer(name="t", partitions=asked)])

        return ScriptedAdmin(monkeypatch, answer)

    return broker


def ends_of(admin: ScriptedAdmin, limit: float = 1.0) -> Ends:
    return Ends(admin, "t", Reach(), limit)


def test_a_cluster_that_hangs_is_told(broker: Broker) -> None:
    with pytest.raises(UnreachableError, match="describing topic t"):
        ends_of(broker([kafka.errors.KafkaTimeoutError()], []))


@pytest.mark.parametrize("code", [*MOVED, UNKNOWN])
def test_a_leader_that_moves_or_has_not_heard_of_the_topic_yet_is_asked_again(broker: Broker, code: int) -> None:
    admin = broker([0], [{0: 0, 1: code}, {1: code}, {1: 0}])
    assert ends_of(admin).now() == {0: 7, 1: 7}
    assert admin.asked == ["Metadata", *["ListOffsets", "Leaders"] * 2, "ListOffsets"]


def test_a_topic_that_is_deleted_meanwhile_is_unknown(broker: Broker) -> None:
    admin = broker([0, UNKNOWN], [{0: 0, 1: UNKNOWN}])
    with pytest.raises(UnknownTopicError):
        ends_of(admin, limit=0.3).now()


def test_a_broker_that_never_hears_of_the_topic_is_told(broker: Broker) -> None:
    admin = broker([0], [{0: 0, 1: UNKNOWN}])
    with pytest.raises(UnreachableError, match=r"Not every broker .* knows topic t"):
        ends_of(admin, limit=0.3).now()


@pytest.mark.parametrize("code", MOVED)
def test_a_leader_that_does_not_come_is_told(broker: Broker, code: int) -> None:
    admin = broker([0], [{0: 0, 1: code}])
    with pytest.raises(UnreachableError, match="listing the end offsets"):
        ends_of(admin, limit=0.3).now()


def test_another_error_is_told_at_once(broker: Broker) -> None:
    admin = broker([0], [{0: 0, 1: kafka.errors.InvalidRequestError.errno}])
    with pytest.raises(EosError, match="listing the end offsets"):
        ends_of(admin).now()
    assert "Leaders" not in admin.asked
