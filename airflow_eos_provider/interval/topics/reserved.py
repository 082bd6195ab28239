"""Topics that rows may not name: topics of Kafka, of Connect and of this package.

Their readers know every kind of record in them, and stop at one of another kind. Rows copied from another cluster with
their column ``topic`` may name its internal topics.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def require_data(topic: str, pipeline: Pipeline, ledgers: Mapping[str, str] | None = None) -> None:
    """Check that a topic is for rows; ``ledgers`` are those that the control topic knows, with their pipelines."""
    uses = {
        **dict.fromkeys(_KAFKAS, "a topic of the brokers' own"),
        **dict.fromkeys(_CONNECTS, "an internal topic of a Connect cluster"),
        pipeline.ledger_topic: f"the ledger of the pipeline {pipeline.name}",
        **{name: f"the ledger of the pipeline {owner}" for name, owner in (ledgers or {}).items()},
        pipeline.control_topic: f"the control topic of the group {pipeline.group_id}",
    }
    use = "the journal of a Connect group's rolling upgrades" if topic.startswith(_JOURNALS) else uses.get(topic)
    if use:
        raise ConfigurationError(
            f"Rows are to be written to topic {topic}, which is {use}.",
            expected="a topic of data: a row there would make the topic unreadable for those who work with it",
            remedy="Correct the pipeline's topic, or the rows' column topic: rows that are copied from another "
            "cluster may name its internal topics.",
        )
