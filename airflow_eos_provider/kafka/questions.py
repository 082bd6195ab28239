"""What both Kafka libraries can be asked about topics, and what their clients have in common.

librdkafka answers through :class:`~airflow_eos_provider.kafka.clients.QuietAdmin`, kafka-python through
:class:`~airflow_eos_provider.kafka.wire_questions.WireQuestions`. Spark's executors have the second alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_eos_provider.errors import ConfigurationError, EosError
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
    :param partitions: how many it has.
    :param replicas: copies of the partition that has most of them.
    :param least_replicas: copies of the partition that has fewest of them.
    """

    id: str
    partitions: int
    replicas: int
    least_replicas: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of partitions, as far as they were answered.

    :param found: by partition; -1 for a time after the last record.
    :param moved: the error of a partition whose leader has moved; None if none has.
    :param unknown: the error of a partition that its broker does not know; None if each is known.
    """

    found: Mapping[int, int]
    moved: EosError | None = None
    unknown: EosError | None = None


class Questions(Protocol):
    """Questions about topics. Each raises :class:`UnreachableError` where no broker answers in time, and
    :class:`ConfigurationError` where the principal may not ask; ``seconds`` is the limit of one."""

    settings: KafkaSettings

    def partitions_of(self, topic: str, seconds: float) -> tuple[str | None, set[int]] | None:
        """A topic's id, None if that could not be asked for, and its partitions; None if there is no such topic."""
        ...

    def described(self, names: Sequence[str], seconds: float) -> dict[str, TopicDescription]:
        """The topics that the broker knows; others are absent."""
        ...

    def topic_settings(self, names: Sequence[str], seconds: float) -> dict[str, dict[str, str]]:
        """By topic its settings; topics that the broker does not know are absent."""
        ...

    def offsets(
        self, topic: str, partitions: Collection[int], at: int, *, committed: bool, seconds: float, what: str
    ) -> Offsets:
        """Offsets of partitions.

        :param at: a time, :data:`LATEST` or :data:`EARLIEST`.
        :param committed: of the latest, that of readers of committed records.
        :param what: the question in words, for errors.
        """
        ...

    def ask_for_leaders(self, topic: str, seconds: float, what: str) -> None:
        """Ask who leads a topic's partitions."""
        ...


def not_allowed(
    settings: KafkaSettings, what: str, operations: Sequence[Operation], resource: Resource, name: str
) -> ConfigurationError:
    """The error for a right that this client's principal does not have, with the command that grants it.

    :param what: what was being done.
    :param operations: all that it needs on the resource; the first one was refused.
    """
    principal = settings.principal or "User:<of this client's certificate, ticket or token>"
    command = grant_command(principal, operations, resource, name, bootstrap_servers=settings.bootstrap_servers)
    return ConfigurationError(
        f"The Kafka cluster at {settings.bootstrap_servers} refused {settings.who} ({what}): "
        f"{operations[0]} on {resource} {name}.",
        expected=f"an ACL that allows {settings.who} {' and '.join(operations)} on it",
        remedy=f"Let a principal that may alter ACLs grant it: {command}",
    )
