"""Secrets are taken out of foreign text, by value and by shape, and nothing else is."""

from __future__ import annotations

import json

import pytest

from airflow_eos_provider import redaction
from airflow_eos_provider.connect.cluster.description import ConnectCluster, worker_id_of
from airflow_eos_provider.connect.rest import Answer, ConnectRest
from airflow_eos_provider.errors import ConnectRestError, EosError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.redaction import holds_secret, is_secret, redact, remember, secrets_of

CANARY = "c4n4ry-9f"


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_values", {})


@pytest.mark.parametrize(
    "text",
    [
        f"password={CANARY}",
        f"database.password = {CANARY}, user = x",
        f'"connection.password": "{CANARY}"',
        rf"{{\"connection.password\":\"{CANARY}\"}}",
        f"sasl.password: '{CANARY}'",
        f"-Djavax.net.ssl.trustStorePassword={CANARY} -Xmx1g",
        f"jdbc:postgresql://db:5432/x?user=me&password={CANARY}&ssl=true",
        f"https://me:{CANARY}@registry:8081/subjects",
        f"https://me:p@{CANARY}@registry:8081/subjects",
        f'PlainLoginModule required username="me" password="{CANARY}";',
        f"ScramLoginModule   required {CANARY};",
        f"Authorization: Basic {CANARY}MTIzNDU2",
        f"Authorization: Bearer {CANARY}0123456789",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
        f"-----BEGIN ENCRYPTED PRIVATE KEY----- {CANARY}",
        f"Invalid value {CANARY} for configuration connection.password: no such thing",
        f"api.key={CANARY}",
        f"aws_secret_access_key={CANARY}",
        f"ssl.key.passphrase={CANARY}",
        f"basic.auth.user.info=me:{CANARY}",
        f"<password>{CANARY}</password>",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ{CANARY}.abc",
    ],
)
def test_a_secret_is_known_by_the_shape_around_it(text: str) -> None:
    assert CANARY in text
    assert CANARY not in redact(text)
    assert holds_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "errors.SaslAuthenticationException: Authentication failed: Invalid username or password",
        "org.apache.kafka.connect.errors.ConnectException: Basic authentication is required",
        "io.confluent.InvalidPasswordException: it is too short",
        "Caused by: com.fasterxml.jackson.core.JsonParseException: Unrecognized token 'foo': was expecting null",
        "ssl.keystore.password = [hidden]",
        "password = ${file:/secrets:password}",
        "sasl.jaas.config = null",
        "http://worker-1:8083/connectors answered 500",
        "Task is being killed and will not recover until manually restarted",
    ],
)
def test_words_that_hold_no_secret_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "CONNECT_SASL_JAAS_CONFIG",
        "KAFKA_SSL_KEY_PASSPHRASE",
        "basic.auth.user.info",
        "schema.registry.basic.auth.user.info",
        "confluent.api.key",
        "API_KEY",
        "ssl.key.pem",
        "oauth.client.secret",
        "PGPASSWORD",
        "aws.access.key.id",
        "github.token",
    ],
)
def test_names_that_speak_of_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["group.id", "key.converter", "bootstrap.servers", "ssl.ca.location", "sasl.username"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)


def test_a_known_value_goes_whatever_stands_around_it() -> None:
    remember({"sasl.password": f'{CANARY}"&', "db.password": 4711471, "KAFKA_OPTS": "-Dx.password=inTheOptions1"})
    raw = f'refused {CANARY}"& here'
    assert redact(raw) == "refused *** here"
    assert CANARY not in redact(json.dumps({"why": raw}))
    assert redact("number 4711471!") == "number ***!"
    assert redact("got inTheOptions1") == "got ***"


def test_a_plain_word_is_hidden_as_a_word_only() -> None:
    remember({"password": "postgres"})
    assert redact("org.postgresql.Driver: no login with postgres") == "org.postgresql.Driver: no login with ***"


def test_what_only_stands_for_a_secret_is_no_value() -> None:
    found = secrets_of(
        {
            "a.password": "${file:/x:y}",
            "b.password": "",
            "ssl.keystore.location": "/etc/keys.jks",
            "ssl.keystore.type": "PKCS12",
            "c.secret.enabled": True,
            "d.password": "true",
        }
    )
    assert found == ()


def answered(document: object, status: int = 200) -> ConnectRest:
    """The client of a worker that says this."""
    rest = ConnectRest("http://w:1", retry_seconds=0.0)
    answer = Answer(rest.url, status, json.dumps(document).encode())
    rest._send = lambda _: answer  # type: ignore[method-assign]
    return rest


def test_a_trace_loses_its_secrets_as_it_is_read() -> None:
    trace = f"ConnectException: login as me/{CANARY} failed, password=another-{CANARY}-one"
    document = {
        "source": {
            "info": {"name": "source", "config": {"database.password": CANARY}, "type": "source"},
            "status": {
                "connector": {"state": "FAILED", "worker_id": "w:1", "trace": trace},
                "tasks": [{"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": trace}],
            },
        }
    }
    found = answered(document).statuses()["source"]
    assert found.trace == "ConnectException: login as me/*** failed, password=***"
    assert found.tasks[0].trace == found.trace
    assert found.config == {"database.password": CANARY}  # what is compared with stays whole


def test_connects_own_message_loses_them_too() -> None:
    message = f"Connector configuration is invalid: Invalid value {CANARY} for configuration db.password: too short"
    with pytest.raises(ConnectRestError) as refused:
        answered({"error_code": 400, "message": message}, 400).statuses()
    assert CANARY not in str(refused.value)
    assert "Invalid value *** for configuration db.password" in str(refused.value)
    errors = {"value": {"name": "db.password", "errors": [message]}}
    assert CANARY not in str(answered({"name": "x", "error_count": 1, "configs": [errors]}).validate("x", {}))


def test_an_error_never_repeats_what_a_description_holds() -> None:
    ConnectCluster.from_mapping(
        {
            "bootstrap_servers": "b:9092",
            "client": {"sasl.password": f"{CANARY}-client"},
            "group_id": "g",
            "rest": {"username": "u", "password": f"{CANARY}-rest"},
            "workers": [
                {
                    "url": "http://w:8083",
                    "start": ["java", f"-Dtruststore.password={CANARY}-start"],
                    "env": {"CONNECT_SASL_JAAS_CONFIG": f"{CANARY}-jaas", "PIN_PASSWORD": 8316402},
                }
            ],
        }
    )
    text = f"{CANARY}-client {CANARY}-rest {CANARY}-start {CANARY}-jaas 8316402"
    assert str(EosError(text)) == "*** *** *** *** ***"
    assert CANARY not in str(EosError("x", expected=text, remedy=text))


def test_our_own_examples_stay_readable() -> None:
    error = EosError("No password is given.", expected="rest: {password: words}", remedy="Set password=… there.")
    assert "password: words" in str(error)
    assert "password=…" in str(error)


def test_settings_of_a_client_are_remembered() -> None:
    KafkaSettings.of("b:9092", {"sasl.password": CANARY})
    assert redact(f"broker said {CANARY}") == "broker said ***"


def test_an_error_quotes_no_escape_sequence() -> None:
    error = EosError("The end of the log:\n\tat \x1b[2Jhere \u202e")
    assert str(error) == "The end of the log:\n\tat \\x1b[2Jhere \\u202e"


def test_a_member_with_a_broken_address_is_named_as_it_is() -> None:
    assert worker_id_of("http://me@a[/x]:8083/") == "a["
    assert worker_id_of("http://w1:8083/") == "w1:8083"
