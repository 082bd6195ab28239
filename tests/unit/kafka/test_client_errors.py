"""What librdkafka reports in the background, and how long it explains later errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka import clients
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.clients import ClientErrors, explain
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

CODES = sorted(
    {
        code
        for name in dir(KafkaError)
        if isinstance(code := getattr(KafkaError, name), int) and not isinstance(code, bool)
    }
)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "needs", [{}, {resource: ("x", [Operation.READ]) for resource in Resource}], ids=["without", "with needs"]
)
def test_every_answer_of_a_broker_is_an_error_of_ours(
    code: int, needs: dict[Resource, tuple[str, list[Operation]]]
) -> None:
    found = explain(KafkaError(code, "\x1b[2J"), "asking", KafkaSettings.of("127.0.0.1:1"), ClientErrors(), needs)
    assert "\x1b" not in str(found)
    assert found.exit_code in (1, 2, 6)
    if code in clients._NOT_ALLOWED:
        assert isinstance(found, ConfigurationError)
        assert ("kafka-acls" in str(found.remedy)) is bool(needs)
