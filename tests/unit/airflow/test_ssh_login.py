"""A connection of type ssh is the login on a worker's machine; triggers never see one."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowNotFoundException
from airflow.sdk._shared.secrets_masker import secrets_masker

from airflow_eos_provider.connect.cluster.placement import MachineDescription, SshLogin, SystemdUnit
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.redaction import redact
from airflow_eos_provider.rollout.observe.observer import InternalTopics, Observer
from airflow_eos_provider.triggers import connect_drift
from airflow_eos_provider.triggers.gate import ConnectGateTrigger
from tests.sshd import public, running_sshd

#: The public key of a machine: its type, then the data in which the type stands again.
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm9T8zn0Hn7EZUGf5v0R1i8q1nq1Nvh2Yc0N4JmVhJr"

CLUSTER = """
bootstrap_servers: 127.0.0.1:1
group_id: g
defaults:
  service: {systemd: kafka-connect}
  config: /etc/kafka/connect.properties
workers:
  - url: http://127.0.0.2:8083
    machine: {conn_id: to_connect, user: eos}
"""


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Defines the connection to_connect; the one of the cluster names a file."""
    file = tmp_path / "eos.yaml"
    file.write_text(CLUSTER)
    connection = {"conn_type": "kafka_connect", "extra": {"cluster_file": str(file)}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", json.dumps(connection))

    def define_ssh(conn_type: str = "ssh", **fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_TO_CONNECT", json.dumps({"conn_type": conn_type, **fields}))

    return define_ssh


def machine() -> MachineDescription:
    (worker,) = KafkaConnectHook().get_cluster().workers
    assert worker.service == SystemdUnit("kafka-connect.service")
    assert worker.machine is not None
    return worker.machine


def test_the_connection_says_who_logs_in_where(define: Any) -> None:
    define(
        host="connect-1.example.org",
        login="ada",
        password=" c4n4ry-ssh-pw ",
        port=2222,
        extra={"key_file": "/keys/eos", "private_key_passphrase": "c4n4ry-phrase", "conn_timeout": "7", "compress": 1},
    )
    assert machine() == MachineDescription(
        ssh="connect-1.example.org",
        login=SshLogin(
            user="eos", port=2222, password="c4n4ry-ssh-pw", passphrase="c4n4ry-phrase", key_file=Path("/keys/eos")
        ),
        connect_seconds=7.0,
    )
    for secret in ("c4n4ry-ssh-pw", "c4n4ry-phrase"):
        assert secrets_masker.redact(f"it is {secret}") == "it is ***"
        assert secret not in redact(f"it is {secret}") + repr(machine())


def test_without_a_host_the_address_of_the_worker_is_the_machine(define: Any) -> None:
    define(extra={"timeout": 5})
    assert machine() == MachineDescription("127.0.0.2", SshLogin(user="eos"), connect_seconds=5.0)


def test_a_private_key_is_masked_line_by_line(define: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    text = file.read_text()
    define(extra={"private_key": text, "host_key": HOST_KEY.split()[1]})
    assert machine().login.private_key == text
    assert machine().login.host_key == HOST_KEY
    assert text.splitlines()[2] not in repr(machine())
    assert secrets_masker.redact(text.splitlines()[2]) == "***"


@pytest.mark.parametrize("key", ["no_host_key_check", "allow_host_key_change"])
@pytest.mark.parametrize("value", [True, "true", "True"])
def test_host_keys_are_checked_whatever_the_connection_says(define: Any, key: str, value: Any) -> None:
    define(extra={key: value})
    with pytest.raises(ConfigurationError, match=f"sets {key}, and host keys are always checked here"):
        machine()
    define(extra={key: value, "host_key": HOST_KEY})
    assert machine().login.host_key == HOST_KEY
    define(extra={key: "false"})
    assert machine().login.host_key is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "http"}, "a connection of type 'http'"),
        ({"extra": {"private_key": "c4n4ry-key", "key_file": "/k"}}, "both key_file and private_key"),
        ({"extra": {"private_key": ["c4n4ry-key"]}}, "private_key in the connection to_connect is a list"),
        ({"extra": {"key_file": "~no-such-user/k"}}, "~ in key_file of the connection to_connect"),
        ({"extra": {"host_key": "ssh-ed25519"}}, "no public key"),
        ({"extra": {"host_key": "!!"}}, "no public key"),
        ({"extra": {"host_key": "AAAA"}}, "no public key"),
        ({"extra": {"host_key": " "}}, "no public key"),
        ({"extra": {"conn_timeout": 0}}, "no time to connect within"),
        ({"extra": {"conn_timeout": "soon"}}, "no time to connect within"),
        ({"extra": {"conn_timeout": "nan"}}, "no time to connect within"),
    ],
)
def test_what_is_wrong_in_the_connection_is_named(define: Any, fields: dict[str, Any], said: str) -> None:
    define(**fields)
    with pytest.raises(ConfigurationError, match=said) as refused:
        machine()
    assert "kafka_connect_default" in str(refused.value)
    assert "c4n4ry" not in str(refused.value)


def test_whoever_edits_the_connection_of_the_cluster_does_not_log_in_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def cluster(**extra: Any) -> None:
        given = {"group_id": "g", "bootstrap_servers": "127.0.0.1:1", "workers": [{"url": "http://w1:8083"}], **extra}
        connection = json.dumps({"conn_type": "kafka_connect", "extra": given})
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", connection)
        KafkaConnectHook().get_cluster()

    cluster()
    by_defaults = {"defaults": {"machine": "w1", "service": {"systemd": "kc"}}}
    by_entry = {"workers": [{"url": "http://w1:8083", "machine": "w1"}]}
    for extra in (by_defaults, by_entry):
        with pytest.raises(ConfigurationError, match="or of a machine it logs in to"):
            cluster(**extra)
    monkeypatch.setenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION", "True")
    cluster(**by_defaults)
    with pytest.raises(ConfigurationError, match="key_file names a file with a login of this machine"):
        cluster(defaults={"machine": {"key_file": "/root/.ssh/id_ed25519"}})


def test_secret_variables_of_a_service_join_its_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION", "True")
    service = {"start": ["java"], "env": {"HEAP": "1g"}, "env_secrets": {"KAFKA_OPTS": "-Dx.password=c4n4ry-of-opts"}}
    extra = {"group_id": "g", "bootstrap_servers": "b:1", "workers": [{"url": "http://w1:8083", "service": service}]}
    given = json.dumps({"conn_type": "kafka_connect", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", given)
    (worker,) = KafkaConnectHook().get_cluster().workers
    assert worker.env == {"HEAP": "1g", "KAFKA_OPTS": "-Dx.password=c4n4ry-of-opts"}
    assert secrets_masker.redact("of c4n4ry-of-opts") == "of ***"


def test_a_trigger_does_not_get_to_know_the_login(define: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no connection to_connect, so asking for it fails, and a trigger does not ask.
    with pytest.raises(AirflowNotFoundException):
        machine()
    (worker,) = KafkaConnectHook().get_cluster(logs_in=False).workers
    assert worker.machine == MachineDescription("127.0.0.2", SshLogin(user="eos"))

    def not_asked(hook: KafkaConnectHook, conn_id: str) -> None:
        raise AssertionError(f"a trigger asked for {conn_id}")

    define(password="c4n4ry-trigger")
    monkeypatch.setattr(KafkaConnectHook, "_ssh_connection", not_asked)
    monkeypatch.setattr("airflow_eos_provider.connect.group.describe_group", lambda *_: SimpleNamespace(members=[]))
    assert connect_drift._members("kafka_connect_default") == []


def test_what_a_trigger_is_given_holds_no_login(define: Any) -> None:
    define(host="127.0.0.2", password="c4n4ry-serialised")
    trigger = ConnectGateTrigger(conn_id="kafka_connect_default", task="t", wait={}, poll_interval=1.0)
    assert "c4n4ry" not in json.dumps(trigger.serialize())


def test_a_task_logs_in_with_the_connection_and_only_to_the_machine_whose_key_it_pins(
    define: Any, tmp_path: Path
) -> None:
    config = tmp_path / "connect.properties"
    config.write_text("group.id=g\nconfig.storage.topic=of-that-machine\n")
    file = tmp_path / "eos.yaml"
    file.write_text(CLUSTER.replace("/etc/kafka/connect.properties", str(config)).replace(", user: eos", ""))
    with running_sshd(tmp_path) as sshd:
        login = {"host": sshd.address, "port": sshd.port, "login": sshd.user}
        private_key = sshd.user_key.read_text()
        define(**login, extra={"private_key": private_key, "host_key": public(sshd.host_key)})
        files = read_worker_files(KafkaConnectHook().get_cluster())
        assert files.unread == {}
        assert files.common(CONFIGS) == "of-that-machine"
        define(**login, extra={"private_key": private_key, "host_key": HOST_KEY})
        (why,) = read_worker_files(KafkaConnectHook().get_cluster()).unread.values()
        assert "host key" in why
        (why,) = read_worker_files(KafkaConnectHook().get_cluster(logs_in=False)).unread.values()
        assert "not checked from here" in why


def test_secrets_in_the_commands_of_a_cluster_file_are_masked(define: Any, tmp_path: Path) -> None:
    (tmp_path / "eos.yaml").write_text(
        "bootstrap_servers: 127.0.0.1:1\ngroup_id: g\nworkers:\n"
        "  - {url: 'http://w1:1', service: {start: [java, -Dmy.password=c4n4ry-start]}}\n"
        "  - {url: 'http://w2:1', service: {command: {restart: [sv, --token=c4n4ry-command], status: [sv]}}}\n"
    )
    KafkaConnectHook().get_cluster()
    assert secrets_masker.redact("c4n4ry-start and c4n4ry-command") == "*** and ***"


def test_a_look_of_a_trigger_does_not_knock_at_any_machine(define: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as knocked:
        port = knocked.getsockname()[1]
        (tmp_path / "eos.yaml").write_text(CLUSTER.replace("user: eos", f"user: eos, port: {port}, connect_seconds: 2"))
        cluster = KafkaConnectHook().get_cluster(logs_in=False)
        with Observer(cluster, remote=InternalTopics("configs", "offsets")) as observer:
            ((worker_id, host),) = observer.hosts.items()
            facts = observer.look_at_host(worker_id)
        assert facts.problem == "its host is not checked from here"
        knocked.settimeout(0)
        with pytest.raises(BlockingIOError):
            knocked.accept()
        # That the test would see it: whoever looks at the host does knock.
        knocked.settimeout(20)
        looking = threading.Thread(target=host.observe)
        looking.start()
        caller, _ = knocked.accept()
        caller.close()
        looking.join(60)
        assert not looking.is_alive()
