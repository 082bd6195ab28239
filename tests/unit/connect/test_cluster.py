"""The description of a cluster: a Java client's properties file beside it, and the REST client's key."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_eos_provider.cli import common
from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="c4n4ry-file";'
JAVA = f"bootstrap.servers=j:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN}\n"
REST = "group_id: g\nworkers: [{url: 'http://w:1'}]\n"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(JAVA)
    file.chmod(0o600)
    return file


def described(folder: Path, text: str, mode: int = 0o644) -> Path:
    file = folder / "eos.yaml"
    file.write_text(text + REST)
    file.chmod(mode)
    return file


def test_a_file_of_a_java_client_lies_beside_the_description(tmp_path: Path, java: Path) -> None:
    cluster = ConnectCluster.from_file(described(tmp_path, f"command_config: {java.name}\n"))
    assert dict(cluster.kafka.properties) == {
        "bootstrap.servers": "j:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "c4n4ry-file",
    }


def test_what_the_description_says_itself_wins(tmp_path: Path, java: Path) -> None:
    text = f"bootstrap_servers: b:1\ncommand_config: {java}\nclient: {{sasl.username: other}}\n"
    cluster = ConnectCluster.from_file(described(tmp_path, text))
    assert (cluster.kafka.bootstrap_servers, cluster.kafka.properties["sasl.username"]) == ("b:1", "other")


def test_whoever_may_read_secrets_is_told_of_the_file_that_has_them(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(common, "warn", lambda warning: warnings.append(warning) if warning else None)
    file = described(tmp_path, f"command_config: {java.name}\n")
    common.load_cluster(file)
    assert warnings == []
    java.chmod(0o644)
    common.load_cluster(file)
    (warning,) = warnings
    assert str(java) in warning
    warnings.clear()
    common.load_cluster(described(tmp_path, f"command_config: {java.name}\nclient: {{ssl.key.password: c4n4ry-2}}\n"))
    assert len(warnings) == 2


def test_another_kafka_cluster_may_have_a_file_of_a_java_client_too(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(common, "warn", lambda warning: warnings.append(warning) if warning else None)
    entry = f"{{command_config: {java.name}, client: {{sasl.username: other}}}}"
    cluster = common.load_cluster(described(tmp_path, f"bootstrap_servers: b:1\nother_kafka: [{entry}]\n"))
    (other,) = cluster.other_kafka
    assert (other.bootstrap_servers, other.properties["sasl.username"]) == ("j:1", "other")
    assert other.properties["sasl.password"] == "c4n4ry-file"
    assert "sasl.password" not in cluster.kafka.properties
    assert warnings == []
    java.chmod(0o644)
    common.load_cluster(tmp_path / "eos.yaml")
    assert len(warnings) == 1
    with pytest.raises(ConfigurationError, match=r"other_kafka\[1\]\.bootstrap_servers is missing"):
        ConnectCluster.from_file(described(tmp_path, "bootstrap_servers: b:1\nother_kafka: [{client: {}}]\n"))


def test_a_secret_that_wins_over_the_file_is_one_of_the_description(tmp_path: Path, java: Path) -> None:
    text = f"command_config: {java.name}\nclient: {{sasl.password: c4n4ry-own}}\n"
    assert ConnectCluster.from_file(described(tmp_path, text)).holds_secrets


def test_a_file_that_is_missing_or_cannot_be_kept_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.properties cannot be read: No such file"):
        ConnectCluster.from_file(described(tmp_path, "command_config: none.properties\n"))
    (tmp_path / "client.properties").write_text("ssl.cipher.suites=X\n")
    with pytest.raises(ConfigurationError, match=r"ssl\.cipher\.suites cannot be kept"):
        ConnectCluster.from_file(described(tmp_path, "bootstrap_servers: b:1\ncommand_config: client.properties\n"))
    with pytest.raises(ConfigurationError, match="bootstrap_servers is missing"):
        ConnectCluster.from_file(described(tmp_path, ""))


def test_the_passphrase_of_the_rest_clients_key_is_a_secret(tmp_path: Path) -> None:
    rest = "rest: {client_certificate: c.pem, client_key: k.pem, client_key_password: c4n4ry-rest}\n"
    cluster = ConnectCluster.from_file(described(tmp_path, f"bootstrap_servers: b:1\n{rest}"))
    assert cluster.rest.client_key_password == "c4n4ry-rest"
    assert cluster.rest.client_key == tmp_path / "k.pem"
    assert cluster.holds_secrets
    assert "c4n4ry" not in repr(cluster)
