"""Which Kafka clusters a connector's clients use: what is asked of the brokers, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusterLook, ClientClusters

IDS = {"here:9092": "kafka-1", "alias:9092": "kafka-1", "there:9092": "kafka-2"}
PRODUCER, CONSUMER, ADMIN = (f"{client}.override.bootstrap.servers" for client in ("producer", "consumer", "admin"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked for the id of their cluster."""
    found: list[str] = []

    def cluster_id(session: Session) -> str:
        addresses = session.settings.bootstrap_servers
        found.append(addresses)
        assert session.settings.properties["security.protocol"] == "ssl"
        if addresses not in IDS:
            raise UnreachableError("no broker answers")
        return IDS[addresses]

    monkeypatch.setattr(Session, "cluster_id", cluster_id)
    return found


def look(cluster: Any, **configs: dict[str, str]) -> dict[str, ClientClusters]:
    for name, config in configs.items():
        cluster.configs[name] = replace(cluster.configs[name], config=config)
    settings = KafkaSettings.of("here:9092", {"security.protocol": "ssl"})
    return ClientClusterLook(Session(settings)).look(cluster.observe())


def test_without_an_override_nothing_is_asked(cluster: Any, asked: list[str]) -> None:
    assert look(cluster) == {}
    assert look(cluster, sink={CONSUMER: "there:9092"}) == {}
    assert asked == []


def test_each_address_is_asked_once(cluster: Any, asked: list[str]) -> None:
    there = {PRODUCER: "there:9092", CONSUMER: "there:9092", "offsets.storage.topic": "own"}
    found = look(cluster, file=there, mirror={ADMIN: "alias:9092"})
    assert found == {
        "file": ClientClusters("kafka-1", "kafka-2", "kafka-2", "kafka-1", has_own_topic=True, is_stopped=False),
        "mirror": ClientClusters("kafka-1", "kafka-1", "kafka-1", "kafka-1", has_own_topic=False, is_stopped=False),
    }
    assert sorted(asked) == ["alias:9092", "here:9092", "there:9092"]


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        ("nowhere:9092", f"the Kafka cluster of {PRODUCER}=nowhere:9092 is not known: no broker answers"),
        ("${file:/etc/kafka:servers}", f"a config provider supplies {PRODUCER}"),
    ],
)
def test_what_is_not_known_is_said(cluster: Any, asked: list[str], addresses: str, problem: str) -> None:
    assert look(cluster, file={PRODUCER: addresses})["file"].problem == problem
