"""How other Kafka clusters are described, and which description is used for the addresses that a connector names."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import ConfigurationError, RefusedError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session

LOGIN = {"security.protocol": "SASL_SSL", "sasl.username": "there", "sasl.password": "canary-5b3e"}
WITHOUT = {"security.protocol": "SSL"}


def cluster(**more: Any) -> ConnectCluster:
    return ConnectCluster.from_mapping(
        {
            "bootstrap_servers": "here:9092",
            "client": {"security.protocol": "SASL_SSL", "sasl.username": "here", "sasl.password": "canary-c0a1"},
            "group_id": "g",
            "workers": [{"url": "http://w1:8083"}],
            **more,
        }
    )


@pytest.mark.parametrize(
    ("addresses", "sent"),
    [
        ("t1:9092,t2:9092", LOGIN),
        ("t2:9092", LOGIN),
        (" t2:9092 , t1:9092", LOGIN),
        ("t2:9092,", LOGIN),
        ("second:9092", {"sasl.username": "second"}),
        # Whoever configures a connector gets no login by naming one's own address beside a described one.
        ("t1:9092,elsewhere:9092", WITHOUT),
        ("t1:9093", WITHOUT),
        ("t1:9092,second:9092", WITHOUT),
    ],
)
def test_a_login_goes_only_to_addresses_that_are_all_described_with_it(addresses: str, sent: dict[str, str]) -> None:
    described = [
        {"bootstrap_servers": "t1:9092, t2:9092", "client": LOGIN},
        {"bootstrap_servers": "second:9092", "client": {"sasl.username": "second"}},
    ]
    with ConnectSession(cluster(other_kafka=described)) as session:
        found = session.other_kafka.session(addresses).settings.properties
        assert found == {"bootstrap.servers": addresses, **sent}


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ("t1:9092", "check that these brokers run, and their entry under other_kafka"),
        ("t2:9092", "if these brokers want a login, or another TLS than the workers' brokers, describe them under"),
        ("t1:9092,t2:9092,", "add t2:9092 to the entry under other_kafka that has the other addresses"),
        (
            "${file:x:y}",
            "write the addresses into producer.override.bootstrap.servers, consumer.override.bootstrap.servers, ",
        ),
    ],
)
def test_what_to_do_where_no_id_is_found(addresses: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cluster_id(session: Session) -> str:
        raise UnreachableError("no broker answers")

    monkeypatch.setattr(Session, "cluster_id", cluster_id)
    with ConnectSession(cluster(other_kafka=[{"bootstrap_servers": "t1:9092"}])) as session:
        with pytest.raises((UnreachableError, ConfigurationError)):
            session.other_kafka.id_of(addresses)
        assert session.other_kafka.remedy(addresses).startswith(said)


@pytest.mark.parametrize("said", ["", "a/b", "x" * 65])
def test_what_brokers_say_is_a_cluster_id_or_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "cluster_id", lambda self: said)
    with ConnectSession(cluster()) as session, pytest.raises(RefusedError, match="an invalid cluster id"):
        session.other_kafka.id_of("t1:9092")


def test_a_description_with_a_password_there_holds_a_secret() -> None:
    plain = {"group_id": "g", "bootstrap_servers": "b:1", "workers": [{"url": "http://w1:8083"}], "client": {}}
    assert not cluster(**plain).holds_secrets
    assert cluster(**plain, other_kafka=[{"bootstrap_servers": "t1:9092", "client": LOGIN}]).holds_secrets
    assert "canary" not in repr(cluster(other_kafka=[{"bootstrap_servers": "t1:9092", "client": LOGIN}]))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"bootstrap_servers": "t1:9092"}, "other_kafka is not a list"),
        (["t1:9092"], r"other_kafka\[1\] is not a mapping"),
        ([{"bootstrap_servers": "t1:9092"}, {"client": {}}], r"other_kafka\[2\]\.bootstrap_servers is missing"),
        ([{"bootstrap_servers": ["t1:9092"]}], r"other_kafka\[1\]\.bootstrap_servers is a list"),
        ([{"bootstrap_servers": "t1:9092", "client": "sasl"}], r"other_kafka\[1\]\.client is not a mapping"),
        ([{"bootstrap_servers": "t1:9092", "password": "x"}], r"Unknown key password in other_kafka\[1\]"),
    ],
)
def test_a_wrong_description_is_named(entries: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        cluster(other_kafka=entries)
