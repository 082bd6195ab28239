"""A connection becomes the description of a cluster, and its Test button tells what does not answer."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import secrets_masker

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

WORKERS = [{"url": "http://w1:8083", "config": "/etc/w1.properties"}, {"url": "http://w2:8083"}]


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(conn_id: str = "kafka_connect_default", *, conn_type: str = "kafka_connect", **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    return define


def test_the_extra_is_the_mapping_of_the_cluster_file(connection: Any) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "connect", "workers": WORKERS})
    cluster = KafkaConnectHook().get_cluster()
    assert cluster.kafka.bootstrap_servers == "b:9092"
    assert cluster.group_id == "connect"
    assert [worker.worker_id for worker in cluster.workers] == ["w1:8083", "w2:8083"]


def test_host_login_and_password_fill_what_the_extra_leaves_open(connection: Any) -> None:
    connection(
        host="b1:9092,b2:9092", login="ada", password="correct-horse", extra={"group_id": "g", "workers": WORKERS}
    )
    cluster = KafkaConnectHook().get_cluster()
    assert cluster.kafka.bootstrap_servers == "b1:9092,b2:9092"
    assert (cluster.rest.username, cluster.rest.password) == ("ada", "correct-horse")


def test_a_kafka_connection_gives_addresses_and_security_but_not_its_consumer_settings(connection: Any) -> None:
    connection(
        "brokers",
        conn_type="kafka",
        extra={
            "bootstrap.servers": "k:9093",
            "security.protocol": "SSL",
            "group.id": "somebody-elses",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        },
    )
    connection(extra={"kafka_conn_id": "brokers", "group_id": "g", "workers": WORKERS})
    cluster = KafkaConnectHook().get_cluster()
    assert dict(cluster.kafka.properties) == {"bootstrap.servers": "k:9093", "security.protocol": "SSL"}
    assert cluster.kafka.kafka_python()["security_protocol"] == "SSL"


def test_a_connection_of_another_type_is_no_kafka_connection(connection: Any) -> None:
    connection("brokers", conn_type="http", host="k")
    connection(extra={"kafka_conn_id": "brokers", "group_id": "g", "workers": WORKERS})
    with pytest.raises(ConfigurationError, match="a connection of type 'http'"):
        KafkaConnectHook().get_cluster()


def test_a_form_may_leave_structures_as_json_text_and_other_fields_empty(connection: Any) -> None:
    connection(
        host="b:9092",
        extra={
            "group_id": "g",
            "workers": json.dumps(WORKERS),
            "client": "",
            "rest": None,
            "kafka_conn_id": "",
            "cluster_file": None,
        },
    )
    assert len(KafkaConnectHook().get_cluster().workers) == 2


def test_a_cluster_file_describes_the_cluster_and_the_connection_its_credentials(
    connection: Any, tmp_path: Path
) -> None:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: f:9092\ngroup_id: from-file\nrest: {timeout_seconds: 7}\n"
        "workers: [{url: 'http://w1:8083', config: w1.properties}]\n"
    )
    connection(
        login="ada",
        password="correct-horse",
        extra={"cluster_file": str(file), "client": {"security.protocol": "SASL_SSL"}},
    )
    cluster = KafkaConnectHook().get_cluster()
    assert cluster.group_id == "from-file"
    assert cluster.workers[0].config == tmp_path / "w1.properties"
    assert (cluster.rest.password, cluster.rest.timeout_seconds) == ("correct-horse", 7)
    assert dict(cluster.kafka.properties) == {"bootstrap.servers": "f:9092", "security.protocol": "SASL_SSL"}


def test_a_cluster_file_beside_workers_is_refused_since_one_would_be_ignored(connection: Any, tmp_path: Path) -> None:
    connection(extra={"cluster_file": str(tmp_path / "eos.yaml"), "workers": WORKERS})
    with pytest.raises(ConfigurationError, match="cluster_file and also workers"):
        KafkaConnectHook().get_cluster()


def test_an_error_names_the_connection_and_the_key(connection: Any) -> None:
    connection(host="b:9092", extra={"group_id": "g", "workers": WORKERS, "worker": 1})
    with pytest.raises(ConfigurationError, match=r"Connection kafka_connect_default: Unknown key worker"):
        KafkaConnectHook().get_cluster()


def test_secrets_of_every_part_are_masked_in_logs_at_once(connection: Any, tmp_path: Path) -> None:
    connection(
        login="ada",
        password="rest-canary-1",
        extra={
            "bootstrap_servers": "b:9092",
            "group_id": "g",
            # Airflow knows by itself that a password is secret, but not that a key is.
            "client": {"ssl.key.pem": "key-canary-2", "sasl.username": "visible-name"},
            "rest": {"token": "token-canary-3"},
            "workers": [
                {"url": "http://w1:8083", "env": {"KEYSTORE_PASSWORD": "env-canary-4", "HEAP": "visible-heap"}}
            ],
        },
    )
    KafkaConnectHook().get_cluster()
    line = "rest-canary-1 key-canary-2 token-canary-3 env-canary-4 visible-name visible-heap"
    assert secrets_masker.redact(line) == "*** *** *** *** visible-name visible-heap"


def test_secrets_of_a_cluster_file_are_masked_too(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: f:9092\ngroup_id: g\nclient: {sasl.password: file-canary-5}\n"
        "rest: {token: file-canary-6}\nworkers: [{url: 'http://w1:8083'}]\n"
    )
    connection(extra={"cluster_file": str(file)})
    KafkaConnectHook().get_cluster()
    assert secrets_masker.redact("file-canary-5 file-canary-6") == "*** ***"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_test_button_says_of_each_part_that_it_does_not_answer(connection: Any) -> None:
    broker, worker = closed_port(), closed_port()
    connection(host=f"127.0.0.1:{broker}", extra={"group_id": "g", "workers": [{"url": f"http://127.0.0.1:{worker}"}]})
    works, message = KafkaConnectHook().test_connection()
    assert not works
    assert "Kafka: FAILED" in message
    assert "group g: FAILED" in message
    assert f"worker 127.0.0.1:{worker}: FAILED" in message


def test_the_test_button_explains_a_wrong_description_instead_of_raising(connection: Any) -> None:
    connection(host="b:9092", extra={"group_id": "g"})
    works, message = KafkaConnectHook().test_connection()
    assert not works
    assert "lists no workers" in message


def test_without_any_answering_worker_there_is_no_client(connection: Any) -> None:
    connection(host="b:9092", extra={"group_id": "g", "workers": [{"url": f"http://127.0.0.1:{closed_port()}"}]})
    with pytest.raises(UnreachableError, match="No worker answers"):
        KafkaConnectHook().get_conn()


def test_a_client_of_an_unknown_worker_is_refused(connection: Any) -> None:
    connection(host="b:9092", extra={"group_id": "g", "workers": WORKERS})
    with pytest.raises(ConfigurationError, match="no worker w9:8083"):
        KafkaConnectHook().rest("w9:8083")
