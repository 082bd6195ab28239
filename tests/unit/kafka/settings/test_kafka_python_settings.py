"""What kafka-python gets of a client's properties; what it cannot keep is refused, if it matters."""

from __future__ import annotations

import importlib.util

import pytest
from kafka.admin import KafkaAdminClient

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.kafka_python_settings import configuration

B = {"bootstrap.servers": "b1:1, b2:2"}
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "pa55word"}


def test_a_plain_connection() -> None:
    assert configuration(B) == {
        "bootstrap_servers": ["b1:1", "b2:2"],
        "client_id": "airflow-eos-provider",
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"client.id": "x"}, {"client_id": "x"}),
        ({"security.protocol": "sasl_plaintext", **PLAIN}, {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me"}),
        (
            {"security.protocol": "SASL_PLAINTEXT", **PLAIN, "sasl.mechanism": "scram-sha-256"},
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_password": "pa55word"},
        ),
        ({"socket.timeout.ms": "9000"}, {"request_timeout_ms": 9000}),
        ({"connections.max.idle.ms": "60000", "retry.backoff.ms": "7"}, {"connections_max_idle_ms": 60000}),
        ({"reconnect.backoff.ms": "50", "metadata.max.age.ms": "9"}, {"reconnect_backoff_ms": 50}),
    ],
)
def test_what_has_a_counterpart_is_translated(ours: dict[str, str], theirs: dict[str, object]) -> None:
    found = configuration({**B, **ours})
    assert theirs.items() <= found.items()
    assert set(found) <= set(KafkaAdminClient.DEFAULT_CONFIG)


def test_zero_is_no_limit_where_librdkafka_says_so() -> None:
    assert "connections_max_idle_ms" not in configuration({**B, "connections.max.idle.ms": "0"})
    with pytest.raises(ConfigurationError, match=r"socket\.timeout\.ms is 'soon'"):
        configuration({**B, "socket.timeout.ms": "soon"})


def test_what_tunes_librdkafka_is_left_out() -> None:
    tuned = {"linger.ms": "5", "statistics.interval.ms": "1000", "queued.min.messages": "1", "debug": "all"}
    assert configuration({**B, **tuned}) == configuration(B)


@pytest.mark.parametrize("name", ["ssl.sigalgs.list", "ssl.providers", "ssl.engine.location", "ssl.of.tomorrow"])
def test_tls_that_cannot_be_kept_is_refused_with_what_needs_it(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}.*kafka-python"):
        configuration({**B, "security.protocol": "SSL", name: "x"})
    assert configuration({**B, name: "x"}) == configuration(B)  # without TLS it means nothing to librdkafka either


@pytest.mark.parametrize("name", ["plugin.library.paths", "security.of.tomorrow", "no.such.property"])
def test_what_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        configuration({**B, name: "x"})


def test_a_password_that_is_missing_is_told_before_anybody_is_asked() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.password is missing"):
        configuration({**B, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"})


@pytest.mark.skipif(importlib.util.find_spec("gssapi") is not None, reason="here it is installed")
def test_kerberos_names_the_library_that_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="Kerberos needs the library gssapi"):
        configuration({**B, "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})


def test_tokens_of_a_kind_that_only_librdkafka_gets_are_refused() -> None:
    tokens = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    for more in (
        {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
        {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
        {"sasl.oauthbearer.method": "default", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
    ):
        with pytest.raises(ConfigurationError, match=r"Control messages|unsecure"):
            configuration({**B, "security.protocol": "SASL_SSL", **tokens, **more})
