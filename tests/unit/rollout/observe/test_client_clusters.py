"""Which Kafka clusters a connector's clients use: what is asked of the brokers, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.other_kafka import OtherKafka
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters, client_clusters

IDS = {"here:9092": "kafka-1", "alias:9092": "kafka-1", "there:9092": "kafka-2"}
WITHOUT_LOGIN = {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}
LOGIN = {
    "bootstrap.servers": "here:9092",
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": "/ca.pem",
    "ssl.key.password": "secret",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "eos",
    "sasl.password": "secret",
}
PRODUCER, CONSUMER, ADMIN = (f"{client}.override.bootstrap.servers" for client in ("producer", "consumer", "admin"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked for the id of their cluster."""
    found: list[str] = []

    def cluster_id(session: Session) -> str:
        addresses = session.settings.bootstrap_servers
        found.append(addresses)
        is_own = addresses == "here:9092"
        assert session.settings.properties == (LOGIN if is_own else {"bootstrap.servers": addresses, **WITHOUT_LOGIN})
        if addresses not in IDS:
            raise UnreachableError("no broker answers")
        return IDS[addresses]

    monkeypatch.setattr(Session, "cluster_id", cluster_id)
    return found


def look(cluster: Any, **configs: dict[str, str]) -> dict[str, ClientClusters]:
    for name, config in configs.items():
        cluster.configs[name] = replace(cluster.configs[name], config=config)
    observation = cluster.observe()
    kafka = Session(KafkaSettings(LOGIN))
    others = OtherKafka(kafka)
    first = client_clusters(kafka, others, observation)
    assert client_clusters(kafka, others, observation) == first
    return first


def test_without_other_addresses_nothing_is_asked(cluster: Any, asked: list[str]) -> None:
    cluster.facts("w1:8083", properties={**cluster.workers["w1:8083"].facts.properties, "bootstrap.servers": "b:1,c:1"})
    assert look(cluster) == {}
    same = {PRODUCER: "c:1, b:1", ADMIN: "here:9092"}
    assert look(cluster, sink={CONSUMER: "there:9092"}, file=same) == {}
    assert asked == []


def test_a_connector_that_is_stopped_or_all_of_whose_clients_and_offsets_are_in_one_place_is_not_asked_for(
    cluster: Any, asked: list[str]
) -> None:
    everywhere = dict.fromkeys((PRODUCER, CONSUMER, ADMIN), "${file:/etc/kafka:servers}")
    cluster.configs["mirror"] = replace(cluster.configs["mirror"], target_state="STOPPED")
    assert look(cluster, file={**everywhere, "offsets.storage.topic": "own"}, mirror={PRODUCER: "nowhere:9092"}) == {}
    assert asked == []


def test_each_address_is_asked_once_and_no_login_is_sent_to_one_that_a_connector_names(
    cluster: Any, asked: list[str]
) -> None:
    there = {PRODUCER: "there:9092", CONSUMER: "there:9092", "offsets.storage.topic": "own"}
    found = look(cluster, file=there, mirror={ADMIN: "alias:9092"})
    assert found == {
        "file": ClientClusters("kafka-1", "kafka-2", "kafka-2", "kafka-1", has_own_topic=True),
        "mirror": ClientClusters("kafka-1", "kafka-1", "kafka-1", "kafka-1", has_own_topic=False),
    }
    assert sorted(set(asked)) == ["alias:9092", "here:9092", "there:9092"]
    assert asked.count("there:9092") == asked.count("alias:9092") == 1


def test_the_addresses_that_a_worker_gives_all_clients_count_where_a_connector_gives_none(
    cluster: Any, asked: list[str]
) -> None:
    of_worker = {"producer.bootstrap.servers": "there:9092", "admin.bootstrap.servers": "there:9092"}
    cluster.facts("w2:8083", properties={**cluster.workers["w2:8083"].facts.properties, **of_worker})
    found = look(cluster, mirror={CONSUMER: "there:9092", "offsets.storage.topic": "own"})
    assert found == {"file": ClientClusters("kafka-1", "kafka-2", "kafka-1", "kafka-2", has_own_topic=False)}


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        ("nowhere:9092", "the Kafka cluster of its producer, nowhere:9092, cannot be determined: no broker answers"),
        (
            "${file:/etc/kafka:servers}",
            "the Kafka cluster of its producer, ${file:/etc/kafka:servers}, cannot be determined: a config provider "
            "supplies the addresses",
        ),
    ],
)
def test_what_is_not_known_is_said(cluster: Any, asked: list[str], addresses: str, problem: str) -> None:
    assert look(cluster, file={PRODUCER: addresses})["file"].problem == problem
    assert asked.count("nowhere:9092") <= 1
