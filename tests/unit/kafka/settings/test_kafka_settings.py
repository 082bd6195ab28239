"""Kafka client settings: whom the brokers know a client by."""

from __future__ import annotations

import pytest

from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


@pytest.mark.parametrize(
    ("client", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "ssl"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/c.pem"}, None),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ops"}, "User:ops"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ops"}, "User:ops"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.username": "ops"}, None),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, None),
    ],
)
def test_the_principal_is_known_where_the_settings_say_it(client: dict[str, str], principal: str | None) -> None:
    assert KafkaSettings.of("b:1", client).principal == principal
