"""``complete`` is not written where a marker never came: its broker was down, and the others took it for deleted.

The commit of the last slice is decided, its marker stands in the ledger, but not in the data partition, which is on a
second broker (KAFKA-20734).
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.transactions.audit import FindingKind, hanging_finding
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, find_hanging
from tests.faults.second_broker import SecondBroker, place_topics


def test_a_marker_that_the_brokers_left_out_is_seen(story: Any, second_broker: SecondBroker) -> None:
    place_topics(story.pipeline)
    driver = story.driver(tasks=1, slices=1)
    task = story.task(story.stage_of(driver), stops=["commit"])
    task.wait_until_stopped()
    second_broker.stop()
    _wait_for_leader(story.pipeline, -1)

    task.go_on()
    assert "written" in task.end(), "the brokers say that the transaction has ended"
    second_broker.start()
    _wait_for_leader(story.pipeline, 2)
    _look_for_the_lost_marker(story.pipeline)
    driver.tell("the stage has ended")

    end = driver.wait_for("completed", "error")
    assert "left out the marker in partition 0" in end["text"]
    assert story.completes() == []
    assert story.drained(stable_only=True) == {}, "readers of committed records do not get them"


def _look_for_the_lost_marker(pipeline: Any) -> None:
    """Before the driver fences: a fencing takes from the coordinator that the last transaction was committed."""
    with Session(pipeline.kafka) as session:
        coordinators = Topics(session).partitions()[STATE_TOPIC]
    (found,) = find_hanging(pipeline.kafka, [(pipeline.topic, 0)], coordinators).hanging
    assert found.transactional_id is not None
    assert found.transactional_id.startswith(f"{pipeline.group_id}-{pipeline.name}@")
    assert found.may_be_committed
    said = hanging_finding(found, None)
    assert (said.kind, said.subject) == (FindingKind.LOST_MARKER, f"{pipeline.topic}-0")


def _wait_for_leader(pipeline: Any, leader: int) -> None:
    admin, deadline = AdminClient(pipeline.kafka.confluent()), time.monotonic() + 600
    while admin.list_topics(timeout=180).topics[pipeline.topic].partitions[0].leader != leader:
        assert time.monotonic() < deadline
        time.sleep(0.1)
