"""A topic that is followed: what is read anew, and what is not. A broker's topic is stood in for, since none ends a
read in the middle, or is made anew between two questions, on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.read import follow as module
from airflow_eos_provider.kafka.read.follow import Follower
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.read.topic_ends import Reach, ReplacedTopicError, UnknownTopicError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

NOBODY = KafkaSettings.of("127.0.0.1:1")


class Values:
    """All values, in their order."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.stops: list[int] = []

    def take(self, records: Sequence[LogRecord]) -> None:
        self.values += [record.value for record in records]

    def stop(self, position: int) -> None:
        self.stops.append(position)

    def content(self, end_offset: int) -> tuple[bytes | None, ...]:
        return tuple(self.values)


class FakeTopic:
    def __init__(self, *values: bytes) -> None:
        self.topic_id = "first"
        self.values = list(values)
        self.partitions = 1
        self.starts: list[int] = []
        self.gives_up_before: int | None = None
        self.error: Exception | None = None

    def ends(self, admin: object, topic: str, reach: Reach, limit: float) -> FakeTopic:
        if self.error:
            raise self.error
        return self

    def scan(
        self, kafka: object, topic: str, on_records: Any, reach: Reach, *, timeout_seconds: float
    ) -> dict[int, int]:
        if self.error:
            raise self.error
        start = reach.start.get(0, 0)
        self.starts.append(start)
        if start > len(self.values) or reach.topic_id != self.topic_id:
            raise ReplacedTopicError("another topic")
        records = [LogRecord("t", 0, offset, 0, None, value) for offset, value in enumerate(self.values)]
        limit = len(records) if self.gives_up_before is None else self.gives_up_before
        if batch := records[start:limit]:
            on_records(batch)
        if limit < len(records):
            raise ReadTimeoutError("records were still coming")
        return dict.fromkeys(range(self.partitions), len(records))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    topic = FakeTopic(b"a", b"b", b"c")
    monkeypatch.setattr(module, "scan_to_end", topic.scan)
    monkeypatch.setattr(module, "Ends", topic.ends)
    return topic


@pytest.fixture
def follower() -> Follower[tuple[bytes | None, ...]]:
    return Follower("t", Values)


Following = Follower[tuple[bytes | None, ...]]


def test_what_was_read_is_not_read_again(topic: FakeTopic, follower: Following) -> None:
    assert follower.read(NOBODY, 1.0) == (b"a", b"b", b"c")
    topic.values.append(b"d")
    assert follower.read(NOBODY, 1.0) == (b"a", b"b", b"c", b"d")
    assert topic.starts == [0, 3]


def test_with_nothing_new_the_very_content_is_given_again(topic: FakeTopic, follower: Following) -> None:
    assert follower.read(NOBODY, 1.0) is follower.read(NOBODY, 1.0)


def test_a_read_that_ran_out_of_time_is_gone_on_with(topic: FakeTopic, follower: Following) -> None:
    topic.gives_up_before = 2
    with pytest.raises(ReadTimeoutError):
        follower.read(NOBODY, 1.0)
    assert follower.position == 2
    topic.gives_up_before = None
    assert follower.read(NOBODY, 1.0) == (b"a", b"b", b"c")
    assert topic.starts == [0, 2]


def test_the_replay_is_told_where_each_read_ends(topic: FakeTopic) -> None:
    """What compaction may have taken since, no conclusion is drawn from."""
    values = Values()
    follower = Follower("t", lambda: values)
    topic.gives_up_before = 2
    with pytest.raises(ReadTimeoutError):
        follower.read(NOBODY, 1.0)
    topic.gives_up_before = None
    follower.read(NOBODY, 1.0)
    assert values.stops == [2, 3]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(topic: FakeTopic, follower: Following) -> None:
    """By its id, though it has grown past the place that was reached."""
    follower.read(NOBODY, 1.0)
    topic.topic_id, topic.values = "second", [b"u", b"v", b"w", b"x"]
    assert follower.read(NOBODY, 1.0) == (b"u", b"v", b"w", b"x")
    assert topic.starts == [0, 3, 0]


def test_a_topic_that_is_replaced_before_it_was_read_to_its_end_is_read_from_its_beginning(
    topic: FakeTopic, follower: Following
) -> None:
    topic.gives_up_before = 2
    with pytest.raises(ReadTimeoutError):
        follower.read(NOBODY, 1.0)
    topic.gives_up_before, topic.topic_id, topic.values = None, "second", [b"u", b"v", b"w", b"x"]
    assert follower.read(NOBODY, 1.0) == (b"u", b"v", b"w", b"x")


def test_a_topic_that_ends_earlier_than_it_did_is_read_from_its_beginning(
    topic: FakeTopic, follower: Following
) -> None:
    """A broker that lost its disk has a topic of the same id."""
    follower.read(NOBODY, 1.0)
    del topic.values[1:]
    assert follower.read(NOBODY, 1.0) == (b"a",)
    assert topic.starts == [0, 3, 0]


def test_a_topic_that_is_gone_leaves_nothing_behind(topic: FakeTopic, follower: Following) -> None:
    follower.read(NOBODY, 1.0)
    topic.error = UnknownTopicError("gone")
    with pytest.raises(UnknownTopicError):
        follower.read(NOBODY, 1.0)
    assert follower.position == 0


def test_while_no_broker_answers_nothing_is_forgotten(topic: FakeTopic, follower: Following) -> None:
    follower.read(NOBODY, 1.0)
    topic.error = UnreachableError("no broker")
    with pytest.raises(UnreachableError):
        follower.read(NOBODY, 1.0)
    topic.error = None
    follower.read(NOBODY, 1.0)
    assert topic.starts == [0, 3]


def test_after_a_long_pause_it_begins_anew_for_a_tombstone_may_be_gone(
    topic: FakeTopic, follower: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.read(NOBODY, 1.0)
    monkeypatch.setattr(module, "FOLLOWED_SECONDS", -1.0)
    follower.read(NOBODY, 1.0)
    assert topic.starts == [0, 0]


def test_a_topic_of_several_partitions_is_not_followed(topic: FakeTopic, follower: Following) -> None:
    topic.partitions = 2
    with pytest.raises(ConfigurationError, match="2 partitions"):
        follower.read(NOBODY, 1.0)
    assert follower.position == 0
