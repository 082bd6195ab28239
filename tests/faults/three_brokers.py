"""Three brokers, any of which can be stopped, killed or suspended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.lab.jars import jars
from tests.lab.lab import TestLab, TestLabOptions, TestLabRecord, take_down
from tests.waiting import until

_BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # A broker that answers nothing holds up what the others write for so long.
    "replica.lag.time.max.ms": "2000",
    # Its partitions stay its own for so long, also while a test's pause of it takes longer on a busy machine.
    "broker.session.timeout.ms": "18000",
}

TRANSACTION_STATE = "__transaction_state"


class Brokers:
    """Three brokers by their indexes, and what each of them is needed for."""

    def __init__(self, lab: TestLab) -> None:
        self.lab = lab
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers, "log_level": 2})

    def kill(self, index: int) -> None:
        assert self.lab.broker_process(index) is not None
        self.lab.stop_broker(index, kill=True)

    @contextmanager
    def paused(self, index: int) -> Iterator[None]:
        process = self.lab.broker_process(index)
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.wake(index)

    def wake(self, index: int) -> None:
        process = self.lab.broker_process(index)
        assert process is not None
        os.kill(process.pid, signal.SIGCONT)

    def leader(self, topic: str, partition: int) -> int:
        """Who leads a partition now, once anybody does; a broker hears of that a moment after the controller."""
        found: dict[int, Any] = {}

        def is_led() -> bool:
            found.update(self.admin.list_topics(topic, timeout=180).topics[topic].partitions)
            return partition in found and found[partition].leader > 0

        until(is_led, f"{topic}-{partition} to have a leader", seconds=60)
        return int(found[partition].leader) - 1

    def coordinator(self, transactional_id: str) -> int:
        """Who coordinates a transactional id: the leader of its partition of the transaction log."""
        partitions = len(self.admin.list_topics(TRANSACTION_STATE, timeout=180).topics[TRANSACTION_STATE].partitions)
        return self.leader(TRANSACTION_STATE, abs(java_hash(transactional_id)) % partitions)

    def wait_until_whole(self) -> None:
        """Start who is dead; return when every copy has caught up and every broker leads what it led at first."""
        for index in range(3):
            self.lab.start_broker(index)

        def is_whole() -> bool:
            partitions = [
                partition
                for topic in self.admin.list_topics(timeout=180).topics.values()
                for partition in topic.partitions.values()
            ]
            if all(len(each.isrs) == len(each.replicas) and each.leader == each.replicas[0] for each in partitions):
                return True
            with suppress(KafkaException):  # it is asked again
                self.admin.elect_leaders(ElectionType.PREFERRED).result(180)
            return False

        until(is_whole, "every copy to have caught up, with every broker leading", seconds=150)


def java_hash(text: str) -> int:
    """``String.hashCode``."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32 if value >= 1 << 31 else 0)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, guard: Callable[[Path], None]) -> Iterator[Brokers]:
    """A lab of which only the brokers are started."""
    options = TestLabOptions(name="three", brokers=3, workers=1, root=tmp_path_factory.mktemp("brokers"))
    options.folder.mkdir(parents=True)
    record = TestLabRecord.draw(options)
    record.write(options.folder)
    guard(options.folder)
    try:
        jars.ensure_jars(options.connect_version)
        lab = TestLab(options.folder, record)
        lab.prepare()
        for broker in lab.brokers:
            content = broker.config.read_bytes()
            for name, value in _BROKER.items():
                content = set_property(content, name, value)
            broker.config.write_bytes(content)
        for wait in (False, True):
            for index in range(3):
                lab.start_broker(index, wait=wait)
        yield Brokers(lab)
    finally:
        take_down(options.folder)
