"""``complete`` never runs ahead of the data: also not when the data's broker is slow to take a marker, or away.

The commit of the last slice is decided, its marker stands in the ledger, but not yet in the data partition, which is on
a second broker that stands still (V3); or never will, since that broker was dead and the others took the partition for
deleted (KAFKA-20734).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.transactions import TransactionsClient
from airflow_eos_provider.lab.broker import Broker, write_properties
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.waiting import wait_for_broker
from airflow_eos_provider.processes import ProcessIdentity, spawn

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def second_broker(broker: Broker, make_pipeline: Any, tmp_path_factory: Any) -> Iterator[SecondBroker]:
    """A second node that keeps data only; transactions are coordinated by the first, which knows them already."""
    _have_transactions_coordinated_here(make_pipeline())
    (port,) = free_ports(1)
    second = replace(broker, folder=broker.folder / "second", port=port)
    second.folder.mkdir()
    (second.folder / "log4j2.xml").write_bytes((broker.folder / "log4j2.xml").read_bytes())
    properties = {name: value for name, value in second.properties().items() if name != "controller.listener.names"}
    write_properties(
        second.config,
        {
            **properties,
            "process.roles": "broker",
            "node.id": "2",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        },
    )
    formatting = second._command(
        "kafka.tools.StorageTool", ["format", "-t", broker.cluster_id, "-c", str(second.config)]
    )
    subprocess.run(formatting, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    node = SecondBroker(second)
    node.start()
    try:
        yield node
    finally:
        node.stop()


class SecondBroker:
    """A broker that can be stopped and started again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.process = ProcessIdentity(0, 0)

    def start(self) -> None:
        broker = self._broker
        self.process = spawn(broker.start_command, log=broker.log, pid_file=broker.pid_file, cwd=broker.folder)
        wait_for_broker(broker.bootstrap_servers, self.process, broker.log)

    def stop(self) -> None:
        """In good order, since the controller gives up a broker that is killed only after its session, a minute."""
        self.process.stop(grace_seconds=20)


def _have_transactions_coordinated_here(pipeline: Any) -> None:
    with TransactionsClient(pipeline.kafka) as client:
        client.fence([f"{pipeline.group_id}-first"])


@contextmanager
def standing_still(broker: SecondBroker) -> Iterator[None]:
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "mutation", [pytest.param(None, id="as it is"), pytest.param("no fence before complete", id="no fence")]
)
def test_v3_complete_waits_for_the_markers_in_the_data(
    story: Any, second_broker: SecondBroker, days: Callable[..., Any], mutation: str | None
) -> None:
    _place_topics(story.pipeline)
    driver = story.driver(tasks=1, slices=1, mutation=mutation)
    task = story.task(story.stage_of(driver), stops=["commit"])
    task.wait_until_stopped()

    with standing_still(second_broker):
        task.go_on()
        assert "written" in task.end()
        driver.tell("the stage has ended")
        if mutation:
            assert "completed" in driver.wait_for("completed", "error")
            assert len(story.completes()) == 1  # and the data's broker cannot have taken the marker
        else:
            with pytest.raises(AssertionError, match="did not tell"):
                driver.wait_for("completed", "error", seconds=4)
            assert story.completes() == []

    if not mutation:
        assert "completed" in driver.wait_for("completed", "error")
        assert story.drained(stable_only=True) == story.expected()
        story.require_exactly_once()


@pytest.mark.parametrize(
    "mutation", [pytest.param(None, id="as it is"), pytest.param("no question for markers", id="no question")]
)
def test_a_marker_that_the_brokers_left_out_is_seen(
    story: Any, second_broker: SecondBroker, mutation: str | None
) -> None:
    _place_topics(story.pipeline)
    driver = story.driver(tasks=1, slices=1, mutation=mutation)
    task = story.task(story.stage_of(driver), stops=["commit"])
    task.wait_until_stopped()
    second_broker.stop()
    _wait_for_leader(story.pipeline, -1)

    task.go_on()
    assert "written" in task.end(), "the brokers say that the transaction has ended"
    second_broker.start()
    _wait_for_leader(story.pipeline, 2)
    driver.tell("the stage has ended")

    end = driver.wait_for("completed", "error")
    if mutation:
        assert "completed" in end
        assert len(story.completes()) == 1
    else:
        assert "left out the marker in partition 0" in end["text"]
        assert story.completes() == []
    assert story.drained(stable_only=True) == {}, "readers of committed records do not get them"


def _wait_for_leader(pipeline: Any, leader: int) -> None:
    admin, deadline = QuietAdmin(pipeline.kafka), time.monotonic() + 60
    while admin.client.list_topics(timeout=20).topics[pipeline.topic].partitions[0].leader != leader:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _place_topics(pipeline: Any) -> None:
    """The data on the second broker, all else on the first."""
    admin = QuietAdmin(pipeline.kafka)
    admin.client.delete_topics([pipeline.topic])[pipeline.topic].result(20)
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
    new = [
        NewTopic(pipeline.ledger_topic, num_partitions=1, replica_assignment=[[1]], config=compacted),
        NewTopic(pipeline.control_topic, num_partitions=1, replica_assignment=[[1]], config=compacted),
    ]
    for name, future in admin.client.create_topics(new).items():
        admin.answer(future, f"creating {name}")
    object.__setattr__(pipeline, "topic", f"{pipeline.topic}-apart")
    data = NewTopic(pipeline.topic, num_partitions=1, replica_assignment=[[2]])
    admin.answer(admin.client.create_topics([data])[pipeline.topic], f"creating {pipeline.topic}")
