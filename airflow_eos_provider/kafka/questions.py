"""What the clients of both Kafka libraries have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.acl_values import Operation, Resource, grant_command
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: A cluster that has not answered the first question within this many seconds is called unreachable.
CONNECT_SECONDS = 5.0

#: Instead of a time, milliseconds since the epoch (``ListOffsetsRequest``).
LATEST, EARLIEST = -1, -2


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the brokers describe it.

    :param id: its topic id, as ``kafka-topics.sh`` shows it; empty from brokers that have none (before Kafka 2.8).
    :param leaders: the leader of each partition, -1 for none.
    """

    id: str
    partitions: int
    replicas: int
    least_replicas: int
    leaders: Mapping[int, int] = field(default_factory=dict, compare=False)


def not_allowed(
    settings: KafkaSettings, what: str, operations: Sequence[Operation], resource: Resource, name: str
) -> ConfigurationError:
    """The error for a right that this client's principal does not have, with the command that grants it."""
    principal = settings.principal or "User:<of this client's certificate, ticket or token>"
    command = grant_command(principal, operations, resource, name, bootstrap_servers=settings.bootstrap_servers)
    return ConfigurationError(
        f"The Kafka cluster at {settings.bootstrap_servers} refused {settings.who} ({what}): "
        f"{operations[0]} on {resource} {name}.",
        expected=f"an ACL that allows {settings.who} {' and '.join(operations)} on it",
        remedy=f"Let a principal that may alter ACLs grant it: {command}",
    )
