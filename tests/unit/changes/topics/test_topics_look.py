"""Which own topics a group's connectors have, by their configurations, and whose brokers are believed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.cluster.other_kafka import OtherKafka
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.topic_checks import FoundTopic
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.offsets.stores import Store

TOPIC = FoundTopic("id", 25, 3, {})


def status(name: str, config: dict[str, str]) -> ConnectorStatus:
    return ConnectorStatus(name, "sink" if name == "sink" else "source", "RUNNING", "w1:8083", config=config)


def clients(addresses: str) -> dict[str, str]:
    return {f"{client}.override.bootstrap.servers": addresses for client in ("producer", "consumer", "admin")}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> InternalTopicsClient:
    def id_of(self: OtherKafka, text: str) -> str:
        if text == "away:9092":
            raise UnreachableError("no broker answers")
        return "T"

    monkeypatch.setattr(OtherKafka, "id_of", id_of)
    monkeypatch.setattr(Session, "cluster_id", lambda self: "here")
    monkeypatch.setattr(Topics, "brokers", lambda self: 3)
    description: dict[str, Any] = {
        "bootstrap_servers": "b:9092",
        "group_id": "g",
        "workers": [{"url": "http://w1:8083"}],
        "other_kafka": [{"bootstrap_servers": "t:9092", "client": {"client.id": "described"}}],
    }
    return InternalTopicsClient(ConnectSession(ConnectCluster.from_mapping(description)))


def test_an_own_topic_is_one_that_a_source_connector_names(client: InternalTopicsClient) -> None:
    configs = {
        "named": {"offsets.storage.topic": "t"},
        "without": {},
        "sink": {"offsets.storage.topic": "t"},
        "elsewhere": {"offsets.storage.topic": "t", **clients("t:9092")},
        "away": {"offsets.storage.topic": "t", **clients("away:9092")},
        "provided": {"offsets.storage.topic": "${env:TOPIC}"},
        "global": {"offsets.storage.topic": "global"},
        "slash": {"offsets.storage.topic": "T/t"},
    }
    own = client._own({name: status(name, config) for name, config in configs.items()}, "global")
    assert {name: store.name for name, store in own.items()} == {"named": "t", "elsewhere": "T/t", "global": "global"}
    assert [words.partition(":")[0] for words in client._not_checked] == [
        "the offsets topic of away",
        "the offsets topic of provided",
        "the offsets topic of slash",
    ]
    assert set(client.unknown) == {"away", "slash"}
    client.require_own_topics(["named", "provided"])
    with pytest.raises(UnreachableError):
        client.require_own_topics()
    with pytest.raises(ConfigurationError):
        client.require_own_topics(["slash"])


def own_of(client: InternalTopicsClient, **configs: tuple[str, str]) -> dict[str, Store]:
    """The stores of connectors, each with its topic and its addresses."""
    found = {name: {"offsets.storage.topic": topic, **clients(at)} for name, (topic, at) in configs.items()}
    return client._own({name: status(name, config) for name, config in found.items()}, "global")


def test_of_brokers_that_say_one_cluster_id_the_described_ones_are_believed(
    client: InternalTopicsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(self: InternalTopicsClient, kafka: Session, stores: Iterable[Store]) -> dict[str, FoundTopic]:
        is_described = "client.id" in kafka.settings.properties
        return {store.name: TOPIC for store in stores if store.topic == "there" or not is_described}

    monkeypatch.setattr(InternalTopicsClient, "_found", found)
    own = own_of(
        client, a=("missing", "evil:9092"), m=("missing", "t:9092"), n=("there", "t:9092"), z=("there", "evil:9092")
    )
    there, brokers = client._look_elsewhere(own)
    assert set(there) == {"T/there"}
    assert brokers == {"T/missing": 3, "T/there": 3}
    assert client._addresses("T/missing") == client._addresses("T/there") == "t:9092"


def test_a_right_that_is_missing_on_one_topic_holds_up_no_other(
    client: InternalTopicsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(self: InternalTopicsClient, kafka: Session, stores: Iterable[Store]) -> dict[str, FoundTopic]:
        names = [store.name for store in stores]
        if "T/denied" in names:
            raise ConfigurationError("Describe on the topic denied")
        return dict.fromkeys(names, TOPIC)

    monkeypatch.setattr(InternalTopicsClient, "_found", found)
    own = own_of(client, a=("denied", "t:9092"), b=("allowed", "t:9092"))
    assert set(client._look_elsewhere(own)[0]) == {"T/allowed"}
    assert set(own) == {"b"}
    with pytest.raises(ConfigurationError, match="denied"):
        client.require_own_topics(["a"])
