"""A lab of three brokers, of which any one may be lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab


@pytest.fixture(scope="module")
def last_lab() -> list[Lab]:
    """The lab of the tests so far."""
    return []


@pytest.fixture
def lab(lab_factory: Callable[..., Lab], last_lab: list[Lab]) -> Lab:
    """Three brokers and a worker; another lab if a test has taken the last one down."""
    if not last_lab or not last_lab[0].root.exists():
        last_lab[:] = [lab_factory(name="three", brokers=3, workers=1)]
    return last_lab[0]


@pytest.fixture
def topic(lab: Lab) -> str:
    """A topic of the test's own, of three partitions."""
    name = f"topic-{time.monotonic_ns()}"
    lab.create_topic(name, 3)
    return name


@pytest.fixture
def admin(lab: Lab) -> AdminClient:
    return AdminClient({"bootstrap.servers": lab.bootstrap_servers, "log_level": 2})


def eos_lab(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    place = ["--name", lab.name, "--dir", str(lab.root.parent)]
    command = [sys.executable, "-m", "airflow_eos_provider.lab", *arguments, *place]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def write_to_every_partition(lab: Lab, topic: str, value: bytes) -> None:
    idempotent = {"acks": "all", "enable.idempotence": True}  # a write that is repeated for a late answer comes once
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 2, **idempotent})
    refused = []
    for partition in range(3):
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: error and refused.append(error)
        )
    assert producer.flush(180) == 0
    assert refused == []


def test_every_broker_holds_a_copy_of_every_partition(lab: Lab, topic: str, admin: AdminClient) -> None:
    write_to_every_partition(lab, topic, b"all are well")
    topics = admin.list_topics(timeout=180).topics
    assert {topic, f"{lab.group_id}-configs", "__consumer_offsets"} <= set(topics)
    for name, found in topics.items():
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in found.partitions.values()), name
    assert {partition.leader for partition in topics[topic].partitions.values()} == {1, 2, 3}


def test_the_brokers_share_no_file_and_no_port(lab: Lab) -> None:
    for files in zip(*((b.config, b.log, b.pid_file, b.log_folder) for b in lab.brokers), strict=True):
        assert len(set(files)) == 3
        assert all(file.exists() for file in files)
    assert len({port for broker in lab.brokers for port in broker.ports}) == 6
    assert lab.broker == lab.brokers[0]
    assert lab.cluster().kafka.bootstrap_servers == lab.bootstrap_servers


def test_the_lab_goes_on_without_any_one_broker_and_up_starts_it_again(lab: Lab, topic: str) -> None:
    """The first broker, too: it is no more the controller than the others are."""
    write_to_every_partition(lab, topic, b"all are well")
    lab.stop_broker(0, kill=True)
    assert lab.broker_process(0) is None
    write_to_every_partition(lab, topic, b"one is lost")

    reported = json.loads(eos_lab(lab, "status", "--json").stdout)
    assert not reported["healthy"]
    assert {process["name"]: process["alive"] for process in reported["processes"]} == {
        "broker": False,
        "broker2": True,
        "broker3": True,
        "w1": True,
    }

    up = eos_lab(lab, "up")
    assert up.returncode == 0, up.stderr
    assert json.loads(up.stdout)["bootstrap_servers"] == lab.bootstrap_servers
    assert lab.status().healthy
    assert sorted(
        record.value or b"" for record in read_to_end(KafkaSettings.of(lab.bootstrap_servers), topic).records
    ) == [
        *[b"all are well"] * 3,
        *[b"one is lost"] * 3,
    ]


def test_down_leaves_nothing_not_even_when_a_broker_is_dead(lab: Lab) -> None:
    lab.stop_broker(2, kill=True)
    down = eos_lab(lab, "down")
    assert down.returncode == 0, down.stderr
    assert "Stopped 3 processes" in down.stderr
    assert not lab.root.exists()
    assert not [process.pid for process in psutil.process_iter() if names(process, lab.root)]


def names(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(f":{folder}" in argument for argument in process.cmdline())
    except psutil.Error:
        return False
