"""The description of a cluster: a Java client's properties file beside it, and the REST client's key."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_eos_provider.cli import common
from airflow_eos_provider.connect.cluster.description import ConnectCluster
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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("007", "007"),
        ("12_345", "12_345"),
        ("0x1F", "0x1F"),
        ("1.10", "1.10"),
        ("1.5", "1.5"),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("on", "on"),
        ("No", "No"),
        ("true", "true"),
        ("12345678901234567890", "12345678901234567890"),
        ("'null'", "null"),
        ("!!str 007", "007"),
    ],
)
def test_a_value_without_quotes_is_the_text_that_is_written(tmp_path: Path, written: str, read: str) -> None:
    text = f"bootstrap_servers: b:1\nclient: {{sasl.password: {written}}}\nrest: {{password: {written}}}\n"
    text += f"group_id: {written}\nworkers: [{{url: 'http://w:1', start: [java], env: {{A: {written}}}}}]\n"
    (tmp_path / "eos.yaml").write_text(text)
    cluster = ConnectCluster.from_file(tmp_path / "eos.yaml")
    found = {cluster.group_id, cluster.rest.password, cluster.kafka.properties["sasl.password"]}
    assert {*found, cluster.workers[0].env["A"]} == {read}


def test_an_empty_password_is_an_empty_text_and_none_is_refused(tmp_path: Path) -> None:
    text = "bootstrap_servers: b:1\nrest: {password: ' x '}\nclient: {sasl.password: ''}\n"
    cluster = ConnectCluster.from_file(described(tmp_path, text))
    assert (cluster.rest.password, cluster.kafka.properties["sasl.password"]) == (" x ", "")
    for broken in ("rest: {password: }", "client: {sasl.password: }", "client: {sasl.password: ~}"):
        with pytest.raises(ConfigurationError, match="password has no value"):
            ConnectCluster.from_file(described(tmp_path, f"bootstrap_servers: b:1\n{broken}\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bootstrap_servers: b:1\nbootstrap_servers: b:2\n", "gives a key twice at line 2"),
        ("bootstrap_servers: b:1\nclient:\n  a: 1\n  b: 2\n  a: 3\n", "gives a key twice at line 5"),
        ("a: !!python/name:os.system\n", "is not YAML at line 1"),
        ("rest: {verify: no}\nbootstrap_servers: b:1\n", "rest.verify is 'no'"),
        ("rest: {timeout_seconds: 1_0}\nbootstrap_servers: b:1\n", "rest.timeout_seconds is '1_0'"),
        ("a: [" + "[" * 3000, "is nested too deep|is not YAML"),
        ("? [a]\n: b\n", "is not YAML at line 1"),
        ("a: *b\n", "is not YAML at line 1"),
        ("\ta: b\n", "is not YAML at line 1"),
    ],
)
def test_yaml_that_means_something_else_to_each_reader_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ConnectCluster.from_file(described(tmp_path, text))


def test_a_mapping_that_is_merged_may_have_its_keys_again(tmp_path: Path) -> None:
    text = (
        "bootstrap_servers: b:1\nother_kafka:\n- &one {bootstrap_servers: o:1}\n- {<<: *one, bootstrap_servers: p:1}\n"
    )
    others = ConnectCluster.from_file(described(tmp_path, text)).other_kafka
    assert [each.bootstrap_servers for each in others] == ["o:1", "p:1"]


@pytest.mark.parametrize(
    "content",
    ["root:$6$c4n4ry:19000:0:::\ndaemon:*c4n4ry:1:::\n", "c4n4ry\n", "C4n4ry-Key: x\n", "- c4n4ry\n", "a: b: c4n4ry\n"],
)
def test_nothing_of_a_file_of_another_kind_is_told(tmp_path: Path, content: str) -> None:
    file = tmp_path / "shadow"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        ConnectCluster.from_file(file)
    assert "4n4ry" not in str(refused.value)


def test_the_brokers_of_a_file_are_known_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(common, "warn", lambda warning: warnings.append(warning) if warning else None)
    file = tmp_path / "eos.yaml"
    file.write_text("bootstrap_servers: b:1\nclient: {sasl.password: c4n4ry}\n")
    file.chmod(0o644)
    assert common.load_kafka(file).bootstrap_servers == "b:1"
    assert len(warnings) == 1
    file.write_text("group_id: g\n")
    with pytest.raises(ConfigurationError, match="bootstrap_servers is missing"):
        common.load_kafka(file)
