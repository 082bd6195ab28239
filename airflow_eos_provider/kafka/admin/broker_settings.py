"""The settings of one broker."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from airflow_eos_provider.kafka.clients import QuietAdmin


def broker_settings(admin: QuietAdmin, timeout_seconds: float) -> Mapping[str, str | None]:
    """The settings of the broker with the lowest id; None for a value that it hides.

    :param timeout_seconds: limit of each of the two requests.
    :raises confluent_kafka.KafkaException: no broker answered, or the principal may not read them (*DescribeConfigs*
        on the cluster).
    """
    brokers = admin.client.list_topics(timeout=timeout_seconds).brokers
    broker = ConfigResource(ResourceType.BROKER, str(min(brokers)))
    (future,) = admin.client.describe_configs([broker], request_timeout=timeout_seconds).values()
    return {name: entry.value for name, entry in future.result().items()}
