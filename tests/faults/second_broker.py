"""A second broker, for data that is on another one than the ledger; it is suspended, or stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.servers.part import write_properties
from airflow_eos_provider.lab.waiting import wait_for_broker
from airflow_eos_provider.local_processes import ProcessIdentity, spawn


@contextmanager
def second_broker_of(broker: Broker, pipeline: Any) -> Iterator[SecondBroker]:
    """A second node that keeps data only; transactions are coordinated by the first, which knows them already."""
    _have_transactions_coordinated_here(pipeline)
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
            # The controller knows a node until its session ends, also one that was stopped in good order, and lets
            # no other of its number register before.
            "initial.broker.registration.timeout.ms": "300000",
        },
    )
    formatting = second._command(
        "kafka.tools.StorageTool", ["format", "-t", broker.cluster_id, "-c", str(second.config)]
    )
    subprocess.run(formatting, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=180)
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
        wait_for_broker(broker.lab_client, self.process, broker.log)

    def stop(self) -> None:
        """In good order: what a killed broker leads gets another leader only when its session ends."""
        assert self.process.stop(grace_seconds=120), "the broker had to be killed"


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


def place_topics(pipeline: Any) -> None:
    """The data on the second broker, all else on the first."""
    admin = AdminClient(pipeline.kafka.confluent())
    admin.delete_topics([pipeline.topic])[pipeline.topic].result(180)
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
    new = [
        NewTopic(pipeline.ledger_topic, num_partitions=1, replica_assignment=[[1]], config=compacted),
        NewTopic(pipeline.control_topic, num_partitions=1, replica_assignment=[[1]], config=compacted),
    ]
    for future in admin.create_topics(new).values():
        future.result()
    object.__setattr__(pipeline, "topic", f"{pipeline.topic}-apart")
    data = NewTopic(pipeline.topic, num_partitions=1, replica_assignment=[[2]])
    admin.create_topics([data])[pipeline.topic].result()
