"""No secret on a command line, and none in a file that everybody may read without a word about it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from airflow_eos_provider.cli import common
from airflow_eos_provider.cli.client_options import client_properties
from airflow_eos_provider.connect.cluster.description import exposed_file
from airflow_eos_provider.errors import ConfigurationError

CANARY = "c4n4ry-9f"


@pytest.mark.parametrize(
    "option",
    [
        f"sasl.password={CANARY}",
        f"ssl.key.pem={CANARY}",
        f"sasl.jaas.config=x password={CANARY}",
        f"x=password:{CANARY}",
    ],
)
def test_a_secret_on_the_command_line_is_refused_with_three_other_ways(option: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        client_properties([option], None, {})
    assert CANARY not in str(refused.value)
    for way in ("--client-file", "EOS_CLIENT_", "to be asked for it"):
        assert way in str(refused.value)


def test_file_environment_and_options_come_together_and_the_later_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# mine\nsasl.password = {CANARY}\nsecurity.protocol=SSL\nclient.id=from-file\n")
    environment = {"EOS_CLIENT_SASL_USERNAME": "me", "EOS_CLIENT_CLIENT_ID": "from-environment", "HOME": "/"}
    assert client_properties(["security.protocol=SASL_SSL"], file, environment) == {
        "sasl.password": CANARY,
        "security.protocol": "SASL_SSL",
        "client.id": "from-environment",
        "sasl.username": "me",
    }


def test_a_name_alone_is_asked_for_out_of_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def prompt(name: str, *, hide_input: bool, err: bool) -> str:
        asked.append((name, hide_input))
        return CANARY

    monkeypatch.setattr(typer, "prompt", prompt)  # a terminal with a person at it
    assert client_properties(["sasl.password"], None, {}, ask=True) == {"sasl.password": CANARY}
    assert asked == [("sasl.password", True)]


def test_where_nobody_can_be_asked_the_other_ways_are_named() -> None:
    with pytest.raises(ConfigurationError, match="EOS_CLIENT_SASL_PASSWORD"):
        client_properties(["sasl.password"], None, {}, ask=False)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.here cannot be read: No such file"):
        client_properties([], tmp_path / "nothing.here", {})


@pytest.mark.parametrize(("mode", "reported"), [(0o644, True), (0o640, False), (0o600, False)])
def test_a_file_of_secrets_that_everybody_may_read_is_reported(tmp_path: Path, mode: int, reported: bool) -> None:
    file = tmp_path / "client.properties"
    file.write_text("")
    file.chmod(mode)
    assert bool(exposed_file(file, holds_secrets=True)) is reported
    assert exposed_file(file, holds_secrets=False) is None


CLUSTER = "bootstrap_servers: b:9092\ngroup_id: g\nworkers: [{url: 'http://w:8083'%s}]\n%s"


@pytest.mark.parametrize(
    ("worker", "rest", "reported"),
    [
        ("", f"client: {{sasl.password: {CANARY}}}\n", True),
        ("", f"rest: {{username: me, password: {CANARY}}}\n", True),
        ("", f"rest: {{token: {CANARY}}}\n", True),
        (f", env: {{KAFKA_OPTS: '-Dx.password={CANARY}'}}", "", True),
        (f", start: [java, '-Dx.password={CANARY}']", "", True),
        (", env: {HEAP: 1g}", "client: {security.protocol: SSL}\n", False),
    ],
)
def test_a_cluster_file_with_secrets_that_everybody_may_read_is_reported(
    worker: str, rest: str, reported: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "eos.yaml"
    file.write_text(CLUSTER % (worker, rest))
    file.chmod(0o644)
    common.load_cluster(file)
    shown = capsys.readouterr()
    assert ("every user of this machine may read it" in shown.err) is reported
    assert CANARY not in shown.err
    assert shown.out == ""
    file.chmod(0o600)
    common.load_cluster(file)
    assert capsys.readouterr().err == ""


def test_a_place_of_a_secret_may_be_on_the_command_line() -> None:
    places = {
        "ssl.keystore.location": "/k.p12",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "ssl.key.location": "/k.pem",
    }
    assert client_properties([f"{name}={value}" for name, value in places.items()], None, {}) == places
