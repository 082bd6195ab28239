"""A connection becomes the description of a cluster, and its Test button tells what does not answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk._shared.secrets_masker import secrets_masker
from airflow.secrets.local_filesystem import LocalFilesystemBackend

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.hooks.pipeline import kafka_settings
from airflow_eos_provider.hooks.shown_extra import HIDDEN_BY_AIRFLOW
from airflow_eos_provider.kafka import questions
from airflow_eos_provider.lab.ports import free_ports

WORKERS = [{"url": "http://w1:8083", "config": "/etc/w1.properties"}, {"url": "http://w2:8083"}]


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    # What such a connection may hold is tested below; the tests of its form have it all.
    monkeypatch.setenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION", "True")

    def define(conn_id: str = "kafka_connect_default", *, conn_type: str = "kafka_connect", **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    return define


def test_the_extra_is_the_mapping_of_the_cluster_file(connection: Any) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "connect", "workers": WORKERS})
    cluster = KafkaConnectHook().get_cluster()
    assert cluster.kafka.bootstrap_servers == "b:9092"
    assert cluster.group_id == "connect"
    assert [worker.worker_id for worker in cluster.workers] == ["w1:8083", "w2:8083"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ({"host": "https://w1:8443"}, "https://w1:8443"),
        ({"host": "w1", "port": 8443, "schema": "https"}, "https://w1:8443"),
        ({"host": "w1:8083/"}, "http://w1:8083"),
        ({"host": "http://w1/connect", "port": 8083}, "http://w1:8083/connect"),
    ],
)
def test_host_is_the_rest_url_of_the_only_worker(connection: Any, host: dict[str, Any], url: str) -> None:
    connection(**host, login="ada", password="correct-horse", extra={"bootstrap_servers": "b:9092", "group_id": "g"})
    cluster = KafkaConnectHook().get_cluster()
    assert [worker.url for worker in cluster.workers] == [url]
    assert cluster.kafka.bootstrap_servers == "b:9092"
    assert (cluster.rest.username, cluster.rest.password) == ("ada", "correct-horse")


def test_brokers_or_several_urls_are_no_rest_url(connection: Any) -> None:
    for host in ("b1:9092,b2:9092", "http://w1:8083,http://w2:8083"):
        connection(host=host, extra={"bootstrap_servers": "b:9092", "group_id": "g"})
        with pytest.raises(ConfigurationError, match=r"Host is not the REST URL (.|\n)*Write the brokers into"):
            KafkaConnectHook().get_cluster()


def test_host_beside_workers_is_one_of_them_and_gets_no_login_otherwise(connection: Any, tmp_path: Path) -> None:
    extra = {"bootstrap_servers": "b:9092", "group_id": "g", "workers": WORKERS}
    connection(host="http://w2:8083", extra=extra)
    assert len(KafkaConnectHook().get_cluster().workers) == 2
    file = tmp_path / "eos.yaml"
    file.write_text(json.dumps({**extra, "rest": {"token": "c4n4ry-file"}}))
    for described in (extra, {"cluster_file": str(file)}):
        connection(host="http://evil.example", port=8083, extra=described)
        with pytest.raises(ConfigurationError, match=r"evil\.example:8083, which is not one of the workers"):
            KafkaConnectHook().get_cluster()


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


def test_a_form_may_leave_fields_empty(connection: Any) -> None:
    connection(
        extra={
            "bootstrap_servers": "b:9092",
            "group_id": "g",
            "workers": WORKERS,
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


def test_another_kafka_cluster_has_a_connection_of_its_own_also_beside_a_cluster_file(
    connection: Any, tmp_path: Path
) -> None:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: f:9092\ngroup_id: g\nworkers: [{url: 'http://w1:8083'}]\n"
        "other_kafka: [{bootstrap_servers: 't:9092', client: {sasl.username: file, security.protocol: SASL_SSL}}, "
        "{bootstrap_servers: 'u:9092'}]\n"
    )
    properties = {"bootstrap.servers": "t:9092", "sasl.password": "canary-7d10", "group.id": "mine"}
    connection("target", conn_type="kafka", extra=properties)
    entry = {"kafka_conn_id": "target", "client": {"sasl.username": "connection"}}
    connection(extra={"cluster_file": str(file), "other_kafka": [entry]})
    first, *in_file = KafkaConnectHook().get_cluster().other_kafka
    assert [each.bootstrap_servers for each in in_file] == ["t:9092", "u:9092"]
    assert dict(first.properties) == {
        "bootstrap.servers": "t:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "connection",
        "sasl.password": "canary-7d10",
    }
    assert secrets_masker.redact("canary-7d10") == "***"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("t:9092", "is not a mapping"),
        ({"bootstrap_servers": "t:9092", "client": "canary-41aa", "client_secrets": {}}, "client is not a mapping"),
        ({"bootstrap_servers": "t:9092", "client_secrets": "canary-41aa"}, "client_secrets is not a mapping"),
        ({"client": {}, "client_secrets": None}, "bootstrap_servers is missing"),
    ],
)
def test_a_wrong_entry_of_another_kafka_cluster_is_named(connection: Any, entry: Any, said: str) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "g", "workers": WORKERS, "other_kafka": [entry]})
    with pytest.raises(ConfigurationError, match=rf"other_kafka\[1\]\.?.*{said}") as refused:
        KafkaConnectHook().get_cluster()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "login",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "c4n4ry-file"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "msk-iam"},
        {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "my.auth.token"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.secret": "c4n4ry-file"},
    ],
)
def test_a_login_of_a_cluster_file_goes_nowhere_that_only_the_connection_names(
    connection: Any, tmp_path: Path, login: dict[str, str]
) -> None:
    file = tmp_path / "eos.yaml"
    other = {"bootstrap_servers": "c:1", "client": login}
    described = {"bootstrap_servers": "b:1,b:2", "client": login, "group_id": "g", "workers": WORKERS}
    file.write_text(json.dumps({**described, "other_kafka": [other]}))  # which is YAML, too
    file.chmod(0o600)
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "https://evil.example/token"}
    for more in (
        {"bootstrap_servers": "b:1,evil.example:1"},
        {"client": endpoint},
        {"other_kafka": [{"bootstrap_servers": "c:1", "client": endpoint}]},
    ):
        connection(extra={"cluster_file": str(file), **more})
        with pytest.raises(ConfigurationError, match=r"would be sent to .*evil\.example") as refused:
            KafkaConnectHook().get_cluster()
        assert "c4n4ry" not in str(refused.value)
    connection(extra={"cluster_file": str(file), "bootstrap_servers": "b:2", "client": {"client.id": "airflow"}})
    assert KafkaConnectHook().get_cluster().kafka.bootstrap_servers == "b:2"


def test_a_cluster_file_beside_workers_is_refused_since_one_would_be_ignored(connection: Any, tmp_path: Path) -> None:
    connection(extra={"cluster_file": str(tmp_path / "eos.yaml"), "workers": WORKERS})
    with pytest.raises(ConfigurationError, match="cluster_file and also workers"):
        KafkaConnectHook().get_cluster()


def test_an_error_names_the_connection_and_the_key(connection: Any) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "g", "workers": WORKERS, "worker": 1})
    with pytest.raises(ConfigurationError, match=r"Connection kafka_connect_default: Unknown key worker"):
        KafkaConnectHook().get_cluster()


def test_secrets_of_every_part_are_masked_in_logs_at_once(connection: Any, tmp_path: Path) -> None:
    connection(
        login="ada",
        password="rest-canary-1",
        extra={
            "bootstrap_servers": "b:9092",
            "group_id": "g",
            "client": {"sasl.username": "visible-name", "sasl.password": "8316402"},
            "client_secrets": {"ssl.key.pem": "key-canary-2"},
            "rest": {"token": "token-canary-3"},
            "workers": [
                {
                    "url": "http://w1:8083",
                    "env": {"KEYSTORE_PASSWORD": "env-canary-4", "HEAP": "visible-heap"},
                    "env_secrets": {"KAFKA_OPTS": "-Dtrust.password=opts-canary-5 -Xshare"},
                }
            ],
        },
    )
    KafkaConnectHook().get_cluster()
    line = "rest-canary-1 key-canary-2 token-canary-3 env-canary-4 opts-canary-5 8316402 visible-name visible-heap"
    assert secrets_masker.redact(line) == "*** *** *** *** *** *** visible-name visible-heap"


def test_secrets_of_a_cluster_file_are_masked_too_and_an_open_file_is_reported(
    connection: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: f:9092\ngroup_id: g\nclient: {sasl.password: file-canary-5}\n"
        "rest: {token: file-canary-6}\nworkers: [{url: 'http://w1:8083'}]\n"
    )
    file.chmod(0o644)
    connection(extra={"cluster_file": str(file)})
    KafkaConnectHook().get_cluster()
    assert secrets_masker.redact("file-canary-5 file-canary-6") == "*** ***"
    assert "every user of this machine may read it" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    KafkaConnectHook().get_cluster()
    assert "every user of this machine may read it" not in caplog.text


def airflow_shows(extra: dict[str, Any]) -> str:
    """The extra as Airflow's connection endpoint answers it (``ConnectionResponse.redact_extra``)."""
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse

    return ConnectionResponse.redact_extra(json.dumps(extra)) or ""


@pytest.mark.parametrize(
    "secret",
    [
        {"client": {"sasl.jaas.config": 'PlainLoginModule required password="c4n4ry-9f";'}},
        {"client": {"ssl.key.pem": "c4n4ry-9f"}},
        {"workers": [{"url": "http://w1:8083", "env": {"KAFKA_OPTS": "-Dx.password=c4n4ry-9f"}}]},
        {"workers": [{"url": "http://w1:8083", "env": {"CONNECT_SASL_JAAS_CONFIG": "c4n4ry-9f"}}]},
        {"workers": [{"url": "http://w1:8083", "start": ["java", "-Dstore.password=c4n4ry-9f"]}]},
        {"workers": [{"url": "http://w1:8083", "env": {"BASIC_AUTH": "c4n4ry-9f"}}]},
        {"other_kafka": [{"bootstrap_servers": "t:9092", "client": {"ssl.key.pem": "c4n4ry-9f"}}]},
    ],
)
def test_a_secret_that_airflow_would_show_is_refused_and_not_repeated(secret: dict[str, Any], connection: Any) -> None:
    extra = {"bootstrap_servers": "b:9092", "group_id": "g", "workers": [{"url": "http://w1:8083"}], **secret}
    assert "c4n4ry-9f" in airflow_shows(extra)
    connection(extra=extra)
    with pytest.raises(ConfigurationError, match="Airflow would show the secret in") as refused:
        KafkaConnectHook().get_cluster()
    assert "c4n4ry-9f" not in str(refused.value)
    assert "client_secrets" in str(refused.value)


@pytest.mark.parametrize(
    "secret", [{"client": {"sasl.password": 8316402}}, {"client_secrets": {"x": 8316402}}, {"rest": {"password": 83}}]
)
def test_a_password_of_digits_is_shown_by_airflow_unless_it_is_text(secret: dict[str, Any], connection: Any) -> None:
    extra = {"bootstrap_servers": "b:9092", "group_id": "g", "workers": [{"url": "http://w1:8083"}], **secret}
    assert "83" in airflow_shows(secret)
    connection(extra=extra)
    with pytest.raises(ConfigurationError, match="a password of digits in quotes"):
        KafkaConnectHook().get_cluster()


def test_the_same_secrets_have_a_place_that_airflow_hides_as_a_whole(connection: Any) -> None:
    extra = {
        "bootstrap_servers": "b:9092",
        "group_id": "g",
        "client": {"security.protocol": "SASL_SSL", "sasl.password": "8316402"},
        "client_secrets": {"ssl.key.pem": "c4n4ry-9f", "sasl.jaas.config": "c4n4ry-9f"},
        "rest": {"username": "visible", "password": "c4n4ry-9f", "token": "c4n4ry-9f"},
        "workers": [
            {"url": "http://w1:8083", "env": {"HEAP": "1g"}, "env_secrets": {"KAFKA_OPTS": "-Dx.password=c4n4ry-9f"}}
        ],
        "other_kafka": [
            {
                "bootstrap_servers": "t:9092",
                "client": {"sasl.username": "visible"},
                "client_secrets": {"ssl.key.pem": "c4n4ry-9f"},
            }
        ],
    }
    shown = airflow_shows(extra)
    assert "c4n4ry-9f" not in shown
    assert "8316402" not in shown
    assert "visible" in shown
    connection(extra=extra)
    cluster = KafkaConnectHook().get_cluster()
    assert cluster.kafka.properties["ssl.key.pem"] == "c4n4ry-9f"
    assert cluster.kafka.properties["sasl.password"] == "8316402"
    assert cluster.workers[0].env == {"HEAP": "1g", "KAFKA_OPTS": "-Dx.password=c4n4ry-9f"}
    assert dict(cluster.other_kafka[0].properties) == {
        "bootstrap.servers": "t:9092",
        "sasl.username": "visible",
        "ssl.key.pem": "c4n4ry-9f",
    }


def test_a_name_that_the_deployment_hides_is_hidden(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"group_id": "g", "client": {"ssl.key.pem": "c4n4ry-9f"}, "workers": [{"url": "http://w1:8083"}]}
    connection(extra={"bootstrap_servers": "b:9092", **extra})
    monkeypatch.setenv("AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES", "key_pem, sasl_jaas")
    assert KafkaConnectHook().get_cluster().kafka.properties["ssl.key.pem"] == "c4n4ry-9f"


def test_what_we_take_for_hidden_is_what_this_airflow_hides() -> None:
    from airflow._shared.secrets_masker.secrets_masker import DEFAULT_SENSITIVE_FIELDS

    assert set(HIDDEN_BY_AIRFLOW) <= set(DEFAULT_SENSITIVE_FIELDS)


@pytest.mark.parametrize("key", ["client", "client_secrets", "rest", "workers", "other_kafka"])
def test_a_structure_as_text_is_refused_since_airflow_shows_all_of_it(key: str, connection: Any) -> None:
    extra = {"group_id": "g", "workers": WORKERS, key: json.dumps({"sasl.password": "c4n4ry-9f"})}
    connection(extra={"bootstrap_servers": "b:9092", **extra})
    with pytest.raises(ConfigurationError, match=f"{key} in the extra is text") as refused:
        KafkaConnectHook().get_cluster()
    assert "c4n4ry-9f" not in str(refused.value)


@pytest.mark.parametrize(
    "commands",
    [
        {"workers": [{"url": "http://w1:8083", "start": ["touch", "/tmp/was-here"]}]},
        {"workers": [{"url": "http://w1:8083", "config": "/etc/passwd"}]},
        {"workers": [{"url": "http://w1:8083", "pid_file": "/run/sshd.pid"}]},
        {"workers": [{"url": "http://w1:8083", "env": {"LD_PRELOAD": "/tmp/evil.so"}}]},
        {"client": {"plugin.library.paths": "/tmp/evil.so"}},
        {"client_secrets": {"sasl.kerberos.kinit.cmd": "touch /tmp/was-here"}},
        {"other_kafka": [{"bootstrap_servers": "t:9092", "client": {"plugin.library.paths": "/tmp/evil.so"}}]},
    ],
)
def test_a_connection_runs_nothing_on_this_machine_unless_the_deployment_allows_it(
    commands: dict[str, Any], connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(
        extra={"bootstrap_servers": "b:9092", "group_id": "g", "workers": [{"url": "http://w1:8083"}], **commands}
    )
    assert KafkaConnectHook().get_cluster().group_id == "g"
    monkeypatch.delenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION")
    with pytest.raises(
        ConfigurationError, match="every user who may edit the connection could run any command"
    ) as refused:
        KafkaConnectHook().get_cluster()
    assert "cluster_file" in str(refused.value)
    assert "AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION" in str(refused.value)


def test_a_kafka_connection_runs_nothing_either(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION")
    commands = {"bootstrap.servers": "k:9092", "sasl.kerberos.kinit.cmd": "touch /tmp/was-here"}
    connection("brokers", conn_type="kafka", extra=commands)
    with pytest.raises(ConfigurationError, match=r"sasl\.kerberos\.kinit\.cmd"):
        kafka_settings("brokers")


def test_a_cluster_file_may_say_what_is_run(connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION")
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: f:9092\ngroup_id: g\nworkers: [{url: 'http://w1:8083', start: [java], pid_file: w1.pid}]\n"
    )
    connection(extra={"cluster_file": str(file)})
    assert KafkaConnectHook().get_cluster().workers[0].start == ("java",)


def test_a_connection_names_no_file_outside_of_the_folders_for_that(
    connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "allowed", tmp_path / "allowed-too"
    for each in (folder, elsewhere):
        each.mkdir()
        (each / "eos.yaml").write_text("bootstrap_servers: f:9092\ngroup_id: g\nworkers: [{url: 'http://w1:8083'}]\n")
    (folder / "link.yaml").symlink_to(elsewhere / "eos.yaml")
    monkeypatch.setenv("AIRFLOW__EOS__CONNECTION_FILES_FOLDERS", f"/nowhere, {folder}")
    connection(extra={"cluster_file": str(folder / "eos.yaml")})
    assert KafkaConnectHook().get_cluster().group_id == "g"
    whole = {"bootstrap_servers": "b:1", "group_id": "g", "workers": WORKERS}
    for key, extra in {
        "cluster_file": {"cluster_file": str(elsewhere / "eos.yaml")},
        "cluster_file names .*link": {"cluster_file": str(folder / "link.yaml")},
        r"cluster_file names .*\.\.": {"cluster_file": str(folder / "../allowed-too/eos.yaml")},
        "cluster_file names /etc/shadow": {"cluster_file": "/etc/shadow"},
        "rest.client_key": {**whole, "rest": {"client_key": "/root/key.pem"}},
        "client.ssl.key.location": {**whole, "client": {"ssl.key.location": "/root/key.pem"}},
        "client.sasl.oauthbearer.assertion.file": {
            **whole,
            "client": {"sasl.oauthbearer.assertion.file": "/etc/shadow"},
        },
        "client_secrets.ssl.keystore.location": {**whole, "client_secrets": {"ssl.keystore.location": "/root/k.p12"}},
        "client.sasl.kerberos.keytab": {
            **whole,
            "other_kafka": [{"client": {"sasl.kerberos.keytab": "/etc/k.keytab"}}],
        },
    }.items():
        connection(extra=extra)
        with pytest.raises(ConfigurationError, match=key) as refused:
            KafkaConnectHook().get_cluster()
        assert "AIRFLOW__EOS__CONNECTION_FILES_FOLDERS" in str(refused.value)
    connection(extra={**whole, "rest": {"ca": "/etc/ca.pem"}, "client": {"ssl.ca.location": "/etc/ca.pem"}})
    assert KafkaConnectHook().get_cluster().rest.ca == Path("/etc/ca.pem")
    monkeypatch.delenv("AIRFLOW__EOS__CONNECTION_FILES_FOLDERS")
    connection(extra={"cluster_file": str(folder / "eos.yaml")})
    with pytest.raises(ConfigurationError, match="a file in /etc/eos"):
        KafkaConnectHook().get_cluster()


def test_the_test_button_says_of_each_part_that_it_does_not_answer(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "CONNECT_SECONDS", 0.5)
    broker, worker, other = free_ports(3)
    extra = {
        "bootstrap_servers": f"127.0.0.1:{broker}",
        "group_id": "g",
        "other_kafka": [{"bootstrap_servers": f"127.0.0.1:{other}"}],
    }
    connection(host="127.0.0.1", port=worker, extra=extra)
    works, message = KafkaConnectHook().test_connection()
    assert not works
    assert "Kafka: FAILED" in message
    assert "group g: FAILED" in message
    assert f"Kafka at 127.0.0.1:{other}: FAILED" in message
    assert f"worker 127.0.0.1:{worker}: FAILED" in message
    assert f"The Kafka cluster at 127.0.0.1:{broker} did not answer" in message
    assert message.count("What to do: Check that bootstrap_servers is right") >= 2
    assert "What to do: Check the address, and that the worker runs" in message


def test_the_test_button_explains_a_wrong_description_instead_of_raising(connection: Any) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "g"})
    works, message = KafkaConnectHook().test_connection()
    assert not works
    assert "lists no workers" in message


def test_without_any_answering_worker_there_is_no_client(connection: Any) -> None:
    connection(
        extra={
            "bootstrap_servers": "b:9092",
            "group_id": "g",
            "workers": [{"url": f"http://127.0.0.1:{free_ports(1)[0]}"}],
        }
    )
    with pytest.raises(UnreachableError, match="No worker answers"):
        KafkaConnectHook().get_conn()


def test_a_client_of_an_unknown_worker_is_refused(connection: Any) -> None:
    connection(extra={"bootstrap_servers": "b:9092", "group_id": "g", "workers": WORKERS})
    with pytest.raises(ConfigurationError, match="no worker w9:8083"):
        KafkaConnectHook().rest("w9:8083")


class TestTokens:
    """Tokens for the brokers come from where Airflow's own Kafka provider gets them."""

    KAFKA: ClassVar = {"bootstrap.servers": "k:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}

    def of_kafka(self, connection: Any, **more: Any) -> dict[str, str]:
        connection("brokers", conn_type="kafka", extra={**self.KAFKA, **more})
        return dict(kafka_settings("brokers").properties)

    def test_a_function_that_the_deployment_lists_is_taken(
        self, connection: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", "a.b.other, my.auth.token")
        assert self.of_kafka(connection, oauth_cb="my.auth.token")["oauth_cb"] == "my.auth.token"
        extra = {"kafka_conn_id": "brokers", "group_id": "g", "workers": WORKERS}
        connection(extra=extra)
        assert KafkaConnectHook().get_cluster().kafka.properties["oauth_cb"] == "my.auth.token"

    @pytest.mark.parametrize("allowed", ["", "my.auth.tokens,my.auth"])
    def test_another_function_is_refused_wherever_it_is_named(
        self, connection: Any, monkeypatch: pytest.MonkeyPatch, allowed: str
    ) -> None:
        monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", allowed)
        words = r"may not name the function my\.auth\.token \(oauth_cb\)(.|\n)*callback_allowlist"
        with pytest.raises(ConfigurationError, match=words):
            self.of_kafka(connection, oauth_cb="my.auth.token")
        callback = {"oauth_cb": "my.auth.token"}
        other = [{"bootstrap_servers": "o:1", "client": callback}]
        for more in ({"client": callback}, {"client_secrets": callback}, {"other_kafka": other}):
            connection(extra={"bootstrap_servers": "b:1", "group_id": "g", "workers": WORKERS, **more})
            with pytest.raises(ConfigurationError, match=words):
                KafkaConnectHook().get_cluster()

    def test_other_functions_of_a_connection_concern_its_own_clients(self, connection: Any) -> None:
        found = self.of_kafka(
            connection, error_cb="a.b", stats_cb="a.c", throttle_cb="a.d", on_commit="a.e", log_cb="f"
        )
        assert found == self.KAFKA

    def test_brokers_of_a_cloud_are_known_by_their_names(self, connection: Any) -> None:
        msk = "b-1.demo.abcde1.c2.kafka.eu-central-1.amazonaws.com:9098"
        google = "bootstrap.c.europe-west1.managedkafka.p.cloud.goog:9092"
        method = "sasl.oauthbearer.method"
        assert self.of_kafka(connection, **{"bootstrap.servers": msk})[method] == "msk-iam"
        assert self.of_kafka(connection, **{"bootstrap.servers": google})[method] == "google"
        assert method not in self.of_kafka(connection)
        assert self.of_kafka(connection, **{"bootstrap.servers": msk, method: "oidc"})[method] == "oidc"
        assert method not in self.of_kafka(connection, **{"bootstrap.servers": msk, "sasl.mechanism": "PLAIN"})

    @pytest.mark.parametrize("method", ["msk-iam", "google"])
    def test_brokers_of_others_get_no_token_of_this_machines_cloud_account(self, connection: Any, method: str) -> None:
        msk = "b-1.demo.abcde1.c2.kafka.eu-central-1.amazonaws.com:9098"
        words = "own cloud account to brokers whose names are not"
        stated = {"sasl.oauthbearer.method": method, "sasl.oauthbearer.config": "region=eu-central-1"}
        for servers in ("kafka.example.com:9092", f"{msk},kafka.example.com:9092"):
            with pytest.raises(ConfigurationError, match=words):
                self.of_kafka(connection, **{"bootstrap.servers": servers, **stated})
        described = {"bootstrap_servers": "b:1", "group_id": "g", "workers": WORKERS}
        for extra in (
            {**described, "client": {"sasl.oauthbearer.method": method}},
            {**described, "other_kafka": [{"bootstrap_servers": "c:1", "client_secrets": stated}]},
        ):
            connection(extra=extra)
            with pytest.raises(ConfigurationError, match=words):
                KafkaConnectHook().get_cluster()


def test_a_file_of_a_java_client_is_not_taken_from_a_connection(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    described = {"bootstrap_servers": "b:1", "group_id": "g", "workers": WORKERS, "command_config": str(file)}
    connection(extra=described)
    with pytest.raises(ConfigurationError, match="not taken from a connection"):
        KafkaConnectHook().get_cluster()
    other = {"bootstrap_servers": "c:1", "command_config": str(file)}
    connection(extra={"bootstrap_servers": "b:1", "group_id": "g", "workers": WORKERS, "other_kafka": [other]})
    with pytest.raises(ConfigurationError, match=r"other_kafka\[1\]\.command_config .*not taken from a connection"):
        KafkaConnectHook().get_cluster()


def test_a_secrets_backend_gives_both_kinds_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"bootstrap.servers": "k:1", "security.protocol": "SSL", "ssl.key.password": "backend-c4n4ry"}
    connect = {"kafka_conn_id": "backend_brokers", "group_id": "g", "workers": [{"url": "http://w1:8083"}]}
    file = tmp_path / "connections.json"
    stored = {
        "backend_brokers": {"conn_type": "kafka", "extra": kafka},
        "backend_connect": {"conn_type": "kafka_connect", "extra": connect},
    }
    file.write_text(json.dumps(stored))
    backend = LocalFilesystemBackend(connections_file_path=str(file))
    monkeypatch.setattr("airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda: [backend])
    properties = KafkaConnectHook("backend_connect").get_cluster().kafka.properties
    assert (properties["bootstrap.servers"], properties["ssl.key.password"]) == ("k:1", "backend-c4n4ry")
    assert secrets_masker.redact("backend-c4n4ry") == "***"
