"""A lab of three brokers, of which any one may be lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from tests.lab.lab import TestLab


def eos_lab(lab: TestLab, *arguments: str) -> subprocess.CompletedProcess[str]:
    place = ["--name", lab.name, "--dir", str(lab.root.parent)]
    command = [sys.executable, "-m", "tests.lab", *arguments, *place]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def write_to_every_partition(lab: TestLab, topic: str, value: bytes) -> None:
    idempotent = {"acks": "all", "enable.idempotence": True}  # a write that is repeated for a late answer comes once
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 2, **idempotent})
    refused = []
    for partition in range(3):
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: error and refused.append(error)
        )
    assert producer.flush(180) == 0
    assert refused == []


def test_the_lab_works_without_any_one_broker_and_up_starts_it_again(lab_factory: Callable[..., TestLab]) -> None:
    """The first broker, too: it is no more the controller than the others are."""
    lab = lab_factory(name="three", brokers=3, workers=0)
    lab.create_topic("news", 3)
    write_to_every_partition(lab, "news", b"all are well")
    for name, found in (
        AdminClient({"bootstrap.servers": lab.bootstrap_servers}).list_topics(timeout=180).topics.items()
    ):
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in found.partitions.values()), name
    lab.stop_broker(0, kill=True)
    write_to_every_partition(lab, "news", b"one is lost")

    reported = json.loads(eos_lab(lab, "status", "--json").stdout)
    assert not reported["healthy"]
    alive = {process["name"]: process["alive"] for process in reported["processes"]}
    assert alive == {"broker": False, "broker2": True, "broker3": True}

    up = eos_lab(lab, "up")
    assert up.returncode == 0, up.stderr
    assert json.loads(up.stdout)["bootstrap_servers"] == lab.bootstrap_servers
    assert lab.status().healthy
    records = read_to_end(KafkaSettings.of(lab.bootstrap_servers), "news").records
    assert sorted(record.value or b"" for record in records) == [*[b"all are well"] * 3, *[b"one is lost"] * 3]

    lab.stop_broker(2, kill=True)
    down = eos_lab(lab, "down")
    assert down.returncode == 0, down.stderr
    assert "Stopped 2 processes" in down.stderr
    assert not lab.root.exists()
