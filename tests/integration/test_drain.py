"""The oracle on a real broker: it has to catch each way in which records go wrong, or its "nothing" means nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.demo.connectors import TOPIC_CONFIG
from airflow_eos_provider.demo.oracle import Comparison, compare, drain, expected_from_values
from airflow_eos_provider.errors import ReadTimeoutError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from tests.waiting import answered

LINES = [b'{"line":%d,"year":2013}' % number for number in range(1, 2001)]


class Topic:
    """A topic of the demo's kind, and what was put into it."""

    def __init__(self, lab: Lab) -> None:
        self.name = f"drain-{uuid.uuid4().hex[:8]}"
        self.settings = KafkaSettings.of(lab.bootstrap_servers)
        lab.create_topic(self.name, 3, TOPIC_CONFIG)

    def produce(self, values: Iterable[bytes]) -> None:
        producer = Producer(self.settings.confluent(enable_idempotence=True))
        for value in values:
            producer.produce(self.name, value)
        assert producer.flush(180) == 0

    def begin(self, values: Iterable[bytes]) -> Producer:
        """A transaction with these values, written out and left open."""
        producer = Producer(self.settings.confluent(transactional_id=self.name, transaction_timeout_ms=600_000))
        producer.init_transactions(180)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value)
        assert producer.flush(180) == 0
        return producer

    def compare(self, since_ms: int | None = None) -> Comparison:
        return compare(expected_from_values(LINES, "the input"), drain(self.settings, self.name), since_ms)


@pytest.fixture
def topic(broker_lab: Lab) -> Topic:
    return Topic(broker_lab)


def test_what_was_put_in_once_is_exactly_once(topic: Topic) -> None:
    topic.produce(LINES)
    comparison = topic.compare()
    assert comparison.exactly_once
    assert comparison.records == comparison.expected == len(LINES)


def test_one_missing_record_is_caught(topic: Topic) -> None:
    topic.produce(LINES[:999] + LINES[1000:])
    comparison = topic.compare()
    assert (comparison.missing, comparison.duplicates, comparison.unexpected) == (1, 0, 0)
    assert comparison.examples == ('missing: {"line":1000,"year":2013}',)
    assert not comparison.exactly_once


def test_one_doubled_record_is_caught_and_dated_by_the_brokers_clock(topic: Topic) -> None:
    topic.produce(LINES)
    moment = max(ms for times in drain(topic.settings, topic.name).copies.values() for ms in times) + 1
    while time.time() * 1000 < moment:  # a millisecond at most: no record of the first round has the second one's time
        pass
    # A producer's own timestamp from long ago does not make an early copy of a late one.
    producer = Producer(topic.settings.confluent())
    producer.produce(topic.name, LINES[41], timestamp=1000)
    assert producer.flush(180) == 0
    since = topic.compare(moment)
    assert (since.missing, since.duplicates, since.duplicates_before_enabled) == (0, 1, 0)
    assert since.examples[0].startswith("duplicate at ")
    assert since.examples[0].endswith(' ms: {"line":42,"year":2013}')
    later = topic.compare(int(time.time() * 1000) + 1000)
    assert (later.duplicates, later.duplicates_before_enabled) == (0, 1)


def test_one_altered_record_is_caught(topic: Topic) -> None:
    topic.produce([*LINES[:-1], LINES[-1].replace(b"2013", b"2014")])
    comparison = topic.compare()
    assert (comparison.missing, comparison.unexpected) == (1, 1)
    assert not comparison.exactly_once


def test_a_record_in_an_aborted_transaction_is_missing_though_it_stands_in_the_log(topic: Topic) -> None:
    topic.produce(LINES[:-1])
    topic.begin(LINES[-1:]).abort_transaction(180)
    comparison = topic.compare()
    assert (comparison.missing, comparison.examples) == (1, ('missing: {"line":2000,"year":2013}',))


def test_an_aborted_copy_is_no_duplicate(topic: Topic) -> None:
    topic.produce(LINES)
    topic.begin(LINES[:500]).abort_transaction(180)
    assert topic.compare().exactly_once


def test_a_committed_record_behind_an_open_transaction_is_waited_for_and_not_called_missing(topic: Topic) -> None:
    producer = topic.begin(LINES[:1])
    topic.produce(LINES[1:])
    with pytest.raises(ReadTimeoutError, match="open transaction"):
        answered(lambda: drain(topic.settings, topic.name, timeout_seconds=4))
    producer.commit_transaction(180)
    assert topic.compare().exactly_once


def test_a_copy_of_a_topic_is_held_to_the_topic_as_it_is(topic: Topic, broker_lab: Lab) -> None:
    topic.produce([*LINES, LINES[0]])
    mirror = Topic(broker_lab)
    mirror.produce([*LINES, LINES[0]])
    source = drain(topic.settings, topic.name)
    assert compare(source, drain(mirror.settings, mirror.name)).exactly_once
    mirror.produce([LINES[7]])
    again = compare(source, drain(mirror.settings, mirror.name))
    assert (again.duplicates, again.missing) == (1, 0)


def test_the_demos_amount_is_drained_and_compared(topic: Topic) -> None:
    many = [b'{"line":%d,"padding":"%s"}' % (number, b"x" * 300) for number in range(1, 100_001)]
    producer = Producer(topic.settings.confluent(queue_buffering_max_messages=400_000))
    for value in many:
        producer.produce(topic.name, value)
    assert producer.flush(180) == 0
    expected = expected_from_values(many, "the input")
    assert compare(expected, drain(topic.settings, topic.name)).exactly_once
