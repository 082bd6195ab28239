"""Three brokers, of which one is killed where a run needs it: the run, or its retry, ends exactly once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType
from confluent_kafka.cimpl import NewTopic

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.topics.ledger import slice_key
from airflow_eos_provider.interval.topics.preparation import prepare_topics
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, HangingLook, find_hanging
from tests.faults.three_brokers import TRANSACTION_STATE, Brokers, brokers as brokers
from tests.waiting import until

#: The coordinator waits so long for the copies of what it notes of the id, or else refuses: 1 ms is rarely enough.
_FENCE_TIMEOUT_MS = 30_000


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> KafkaSettings:
    """How to reach the brokers: all of them, for any one may be dead."""
    return KafkaSettings.of(brokers.lab.bootstrap_servers)


@pytest.fixture(autouse=True)
def whole(brokers: Brokers) -> None:
    """Every test begins with three brokers that are in step."""
    brokers.wait_until_whole()


def test_a_run_survives_the_broker_that_coordinates_its_transactions(story: Any, brokers: Brokers) -> None:
    driver = story.driver(tasks=2)
    stage = story.stage_of(driver)
    task = story.task(stage, stops=["flush#2"])
    task.wait_until_stopped()
    transactional_id = story.pipeline.transactional_id(story.run, 0)
    victim = brokers.coordinator(transactional_id)

    brokers.kill(victim)
    task.go_on()
    other = story.task(stage, 1)  # takes its id while the coordinators move

    story.write_on(stage, task)
    story.write_on(stage, other, 1)
    until(lambda: brokers.coordinator(transactional_id) not in (victim, -1), "its successor to be known", seconds=60)
    driver.tell("the stage has ended")
    story.finish_or_retry(driver)
    story.require_exactly_once()


def test_a_run_survives_the_broker_that_leads_the_ledger(story: Any, brokers: Brokers) -> None:
    driver = story.driver(tasks=1, slices=8)
    stage = story.stage_of(driver)
    ledger, run = story.pipeline.ledger_topic, story.run
    coordinator = brokers.coordinator(story.pipeline.transactional_id(run, 0))
    leaders = [brokers.leader(ledger, partition_of(slice_key(run, n), 2)) for n in range(8)]
    assert len(set(leaders)) == 2, "all slices' records have one leader"
    # Not the one of the test above: the transaction's coordinator stays.
    number, victim = next((n, leader) for n, leader in enumerate(leaders) if leader != coordinator)
    task = story.task(stage, stops=[f"commit#{number + 1}"])
    task.wait_until_stopped()

    brokers.kill(victim)
    task.go_on()

    story.write_on(stage, task)
    partition = partition_of(slice_key(run, number), 2)
    until(lambda: brokers.leader(ledger, partition) != victim, "its successor to be known", seconds=60)
    driver.tell("the stage has ended")
    story.finish_or_retry(driver)
    story.require_exactly_once()


def test_a_replicated_topic_whose_leader_acknowledges_alone_is_refused_unless_that_is_allowed(
    story: Any, brokers: Brokers
) -> None:
    """What the leader alone has is lost with it."""
    name = f"{story.pipeline.group_id}-alone"
    new = NewTopic(name, num_partitions=2, replication_factor=3, config={"min.insync.replicas": "1"})
    brokers.admin.create_topics([new])[name].result(180)
    story.pipeline = replace(story.pipeline, topic=name)

    refused = story.drive(story.driver())

    assert refused.get("error") == "ConfigurationError", refused
    assert f"{name} has min.insync.replicas=1 and 3 replicas" in refused["text"]
    story.pipeline = replace(story.pipeline, allow_single_in_sync_replica=True)
    story.complete()
    story.require_exactly_once()


def test_topics_that_are_made_take_no_acknowledgement_of_one_copy_alone(brokers: Brokers, kafka: KafkaSettings) -> None:
    pipeline = Pipeline("made", "made", kafka, topic="made-target", target_partitions=2)
    prepare_topics(pipeline)
    topics = [pipeline.ledger_topic, pipeline.control_topic, "made-target"]
    settings = brokers.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])

    for resource, future in settings.items():
        entry = future.result(60)["min.insync.replicas"]
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # not the brokers' default, which anybody may change
        assert (resource.name, entry.value, entry.source) == (resource.name, "2", own)


def test_a_topic_that_was_just_made_is_read_whichever_broker_is_asked(kafka: KafkaSettings) -> None:
    """A broker hears of a new topic a moment after the one that was asked when it was made."""
    came: list[LogRecord] = []
    for number in range(40):
        with Session(kafka) as session:
            Topics(session).create(topic := f"new-{number}", 5, {})
            TopicReader(session, topic).read_stable(came.extend)
    assert came == []


def test_fencing_by_several_coordinators_returns_only_after_all_markers(brokers: Brokers, kafka: KafkaSettings) -> None:
    """One copy of each partition, each on another broker: what a paused one leads has to wait for its markers.

    The pause is shorter than the broker's session. A partition that has *no* leader gets no marker at all: Kafka 4.3.1
    takes it for deleted and says that the transaction has ended (KAFKA-20734).
    """
    topic = "apart"
    new = NewTopic(topic, num_partitions=3, replica_assignment=[[1], [2], [3]], config={"min.insync.replicas": "1"})
    brokers.admin.create_topics([new])[topic].result(60)
    with TransactionsClient(kafka) as client:
        client.fence(["apart-first"], timeout_ms=_FENCE_TIMEOUT_MS)  # so that the transaction log is there
    paused = brokers.leader(TRANSACTION_STATE, 0)
    coordinators = {f"apart-{number}": brokers.coordinator(f"apart-{number}") for number in range(12)}
    ids = [transactional_id for transactional_id, index in coordinators.items() if index != paused]
    assert len({coordinators[transactional_id] for transactional_id in ids}) == 2
    producers = [begun(kafka, transactional_id, topic) for transactional_id in ids]

    known = KafkaSettings.of(
        ",".join(broker.bootstrap_servers for index, broker in enumerate(brokers.lab.brokers) if index != paused)
    )

    # The client is connected before the pause: what holds it up then are markers, not its own look-ups.
    with ThreadPoolExecutor(1) as pool, TransactionsClient(known) as client, brokers.paused(paused):
        answer = pool.submit(client.fence, ids, timeout_ms=_FENCE_TIMEOUT_MS, timeout_seconds=60)
        with pytest.raises(TimeoutError):
            answer.result(timeout=2)  # the paused one keeps its partitions for sixteen seconds at least
        woken = time.time() * 1000
        brokers.wake(paused)
        assert set(answer.result(timeout=180)) == set(ids)
        marked = {partition: client.active_producers(topic, [partition]) for partition in range(3)}
    assert all(p.transaction_start_offset is None for producers in marked.values() for p in producers)
    assert all(p.last_timestamp_ms >= woken for p in marked.pop(paused))
    assert brokers.leader(topic, paused) == paused, "the pause was longer than the broker's session"
    assert len(producers) == len(ids)  # they lived until here, so nobody but the fencing ended their transactions


def test_what_a_coordinator_that_is_away_has_open_is_never_said_to_hang(brokers: Brokers, kafka: KafkaSettings) -> None:
    """Its partition is led by another broker, which answers; who has it open cannot be asked."""
    topic, transactional_id = "with-others", "with-others-0"
    with TransactionsClient(kafka) as client:
        client.fence([transactional_id], timeout_ms=_FENCE_TIMEOUT_MS)
    away = brokers.coordinator(transactional_id)
    here = next(index for index in range(3) if index != away)
    new = NewTopic(topic, num_partitions=3, replica_assignment=[[here + 1]] * 3, config={"min.insync.replicas": "1"})
    brokers.admin.create_topics([new])[topic].result(60)
    known = KafkaSettings.of(brokers.lab.brokers[here].bootstrap_servers)
    producer = begun(kafka, transactional_id, topic)
    with Session(known) as session:
        coordinators = Topics(session).partitions()[STATE_TOPIC]
    assert find_hanging(known, [(topic, 0)], coordinators) == HangingLook((), (), {})
    looks: list[HangingLook] = []
    # Where no look is possible, 'hanging', the watch and the audit end with exit code 6.
    with brokers.paused(away), suppress(UnreachableError):
        looks.append(find_hanging(known, [(topic, 0)], coordinators))
    brokers.wait_until_whole()
    looks.append(find_hanging(known, [(topic, 0)], coordinators))
    assert [look.hanging for look in looks] == [()] * len(looks)
    assert looks[-1].is_whole
    producer.abort_transaction(60)


def begun(kafka: KafkaSettings, transactional_id: str, topic: str) -> Producer:
    """A producer with a transaction open in all partitions of the topic, which does not expire."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(180)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(180) == 0
    return producer
