"""Topics that rows may not name: topics of Kafka, of Connect and of this package.

Their readers know every kind of record in them, and stop at one of another kind. Rows copied from another cluster with
their column ``topic`` may name its internal topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.journal.name import journal_topic

#: What the brokers write themselves. Other names with two underscores, such as Debezium's heartbeats, are data.
_KAFKAS = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)

#: The names in Kafka's own ``connect-distributed.properties``.
_CONNECTS = frozenset({"connect-configs", "connect-offsets", "connect-status"})

_JOURNALS = journal_topic("")


@dataclass(frozen=True, slots=True)
class ReservedTopics:
    """The topics that rows of one pipeline are not written to."""

    pipeline: Pipeline
    ledgers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def require_data(self, topic: str) -> None:
        if use := self._use(topic):
            raise ConfigurationError(
                f"Rows are to be written to topic {topic}, which is {use}.",
                expected="a topic of data: a row there would make the topic unreadable for those who work with it",
                remedy="Correct the pipeline's topic, or the rows' column topic: rows that are copied from another "
                "cluster may name its internal topics.",
            )

    def _use(self, topic: str) -> str:
        group = self.pipeline.group_id
        if topic == self.pipeline.control_topic:
            return f"the control topic of the group {group}"
        if topic == self.pipeline.ledger_topic or topic in self.ledgers:
            return f"the ledger of the pipeline {self.ledgers.get(topic, self.pipeline.name)}"
        if topic.startswith(_JOURNALS):
            return "the journal of a Connect group's rolling upgrades"
        if topic in _KAFKAS:
            return "a topic of the brokers' own"
        return "an internal topic of a Connect cluster" if topic in _CONNECTS else ""
