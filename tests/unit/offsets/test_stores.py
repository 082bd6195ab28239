"""Where a connector has its offsets, by its configuration, its workers' files and their mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster, RestSettings, WorkerDescription
from airflow_eos_provider.connect.cluster.other_kafka import OtherKafka
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import ConfigurationError, RefusedError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.offsets.stores import OffsetStores

IDS = {"alias:9092": "here", "there:9092": "there", "third:9092": "third"}
OWN = "offsets.storage.topic"


def clients(producer: str, consumer: str = "", admin: str = "") -> dict[str, str]:
    """Overrides of the three clients, by default all the same."""
    given = {"producer": producer, "consumer": consumer or producer, "admin": admin or producer}
    return {f"{client}.override.bootstrap.servers": addresses for client, addresses in given.items()}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectCluster:
    def id_of(self: OtherKafka, text: str) -> str:
        if "$" in text:
            raise ConfigurationError("a config provider supplies the addresses")
        if text not in IDS:
            raise UnreachableError("no broker answers")
        return IDS[text]

    monkeypatch.setattr(OtherKafka, "id_of", id_of)
    monkeypatch.setattr(Session, "cluster_id", lambda self: "here")
    file = tmp_path / "w.properties"
    file.write_text("bootstrap.servers=b1:9092,b2:9092\n")
    worker = WorkerDescription("http://w1:8083", config=file)
    return ConnectCluster(KafkaSettings.of("here:9092"), "g", RestSettings(), (worker,))


def store(cluster: ConnectCluster, config: dict[str, str], *, exactly_once: bool = True) -> str | None:
    with ConnectSession(cluster) as session:
        found = OffsetStores(session, "global", lambda: exactly_once).own("c", config)
        return found and found.name


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({OWN: "global"}, None),
        ({OWN: "own"}, "own"),
        # Other addresses of the workers' Kafka cluster.
        (clients("b2:9092, b1:9092"), None),
        (clients("here:9092"), None),
        (clients("b2:9092"), None),  # of several
        (clients("alias:9092"), None),
        ({OWN: "own", **clients("alias:9092")}, "own"),
        # Another Kafka cluster.
        ({OWN: "own", **clients("there:9092")}, "there/own"),
        ({OWN: "global", **clients("there:9092")}, "there/global"),
    ],
)
def test_where_the_mode_does_not_matter(
    cluster: ConnectCluster, config: dict[str, str], expected: str | None, exactly_once: bool
) -> None:
    assert store(cluster, config, exactly_once=exactly_once) == expected


def test_without_a_topic_of_its_own_another_kafka_cluster_counts_in_the_mode_enabled_only(
    cluster: ConnectCluster,
) -> None:
    assert store(cluster, clients("there:9092"), exactly_once=True) == "there/global"
    assert store(cluster, clients("there:9092"), exactly_once=False) is None
    assert store(cluster, clients("nowhere:9092"), exactly_once=False) is None


def test_the_workers_are_asked_for_their_mode_only_where_it_matters(cluster: ConnectCluster) -> None:
    def asked() -> bool:
        raise AssertionError("asked")

    with ConnectSession(cluster) as session:
        stores = OffsetStores(session, "global", asked)
        assert stores.own("c", {OWN: "own", **clients("there:9092")}) is not None
        assert stores.own("c", {}) is None
        with pytest.raises(AssertionError):
            stores.own("c", clients("there:9092"))


def test_the_addresses_that_a_worker_gives_all_clients_count(cluster: ConnectCluster, tmp_path: Path) -> None:
    file = tmp_path / "w.properties"
    names = ("producer", "consumer", "admin")
    file.write_text(file.read_text() + "".join(f"{name}.bootstrap.servers=there:9092\n" for name in names))
    assert store(cluster, {}) == "there/global"
    assert store(cluster, clients("third:9092")) == "third/global"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (clients("${file:x:y}"), "its producer, .*, which eos cannot identify: a config provider supplies"),
        (clients("there:9092", consumer="third:9092"), "producer: there, consumer: third, admin: there"),
        (clients("there:9092", admin="alias:9092"), "producer: there, consumer: there, admin: here"),
        ({"consumer.override.bootstrap.servers": "there:9092"}, "producer: here, consumer: there, admin: here"),
    ],
)
def test_what_is_not_known_or_not_in_one_cluster_is_refused(
    cluster: ConnectCluster, config: dict[str, str], said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        store(cluster, config)


def test_no_topic_has_a_slash_in_its_name_and_no_name_says_another_cluster(cluster: ConnectCluster) -> None:
    with pytest.raises(ConfigurationError, match="No topic can be called 'there/business'"):
        store(cluster, {OWN: "there/business"})


def test_the_workers_are_asked_for_their_mode_once_also_where_it_is_not_known(cluster: ConnectCluster) -> None:
    asked = []

    def mode() -> bool:
        asked.append(1)
        raise RefusedError("they differ")

    with ConnectSession(cluster) as session:
        stores = OffsetStores(session, "global", mode)
        for _ in range(2):
            with pytest.raises(RefusedError, match="they differ"):
                stores.own("c", clients("there:9092"))
    assert asked == [1]


def test_brokers_that_do_not_answer_are_a_matter_of_time(cluster: ConnectCluster) -> None:
    with pytest.raises(UnreachableError, match="the producer of connector c, nowhere:9092, in which its offsets are"):
        store(cluster, clients("nowhere:9092"))


def test_its_session_sends_no_login_to_addresses_that_a_connector_names(cluster: ConnectCluster) -> None:
    login = {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "eos",
        "sasl.password": "c4n4ry-9f",
    }
    with ConnectSession(replace(cluster, kafka=KafkaSettings(login))) as session:
        found = OffsetStores(session, "global", lambda: True).own("c", clients("there:9092"))
        assert found is not None
        sent: Any = found.kafka.settings.properties
        assert sent == {"bootstrap.servers": "there:9092", "security.protocol": "SSL"}
