"""The topics of interval runs: made if missing, and refused if they could lose what the proof rests on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.config import KafkaSettings

#: Compaction leaves records alone for so long. A read that takes longer asks for new ends, for compaction may by then
#: have removed a record below its end on behalf of one above.
COMPACTION_LAG_MS = 3_600_000

_CALL_SECONDS = 20.0
_POLL_SECONDS = 0.05

#: A topic that was just made is known to every broker within this time, seconds.
_NEWS_SECONDS = 3.0

#: Plans of thousands of files pass in one record.
_CONTROL_MESSAGE_BYTES = 8_000_000

_INTERNAL: Mapping[str, str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(COMPACTION_LAG_MS)}


def prepare_topics(pipeline: Pipeline) -> None:
    """Make the pipeline's ledger and control topic if they are missing, and check all of its topics.

    :raises ConfigurationError: a topic's settings could lose a record, or the target topic is missing.
    :raises UnreachableError: no broker answers.
    """
    admin = QuietAdmin(pipeline.kafka)
    wanted = [pipeline.ledger_topic, pipeline.control_topic] + ([pipeline.topic] if pipeline.topic else [])
    partitions = partition_counts(admin, wanted)
    must_be_there = pipeline.topic if pipeline.target_partitions is None else None
    if must_be_there and must_be_there not in partitions and not _is_there(admin, must_be_there):
        raise missing_topic(must_be_there, pipeline.kafka)
    if pipeline.ledger_topic not in partitions:
        _create(admin, pipeline.ledger_topic, pipeline.ledger_partitions, _INTERNAL)
    if pipeline.control_topic not in partitions:
        config = {**_INTERNAL, "max.message.bytes": str(_CONTROL_MESSAGE_BYTES)}
        _create(admin, pipeline.control_topic, 1, config)
    elif partitions[pipeline.control_topic] != 1:
        raise ConfigurationError(
            f"The control topic {pipeline.control_topic} has {partitions[pipeline.control_topic]} partitions.",
            expected="1, for its records are read in one order",
        )
    _check_settings(admin, [topic for topic in wanted[:2] if topic in partitions])
    if pipeline.topic and pipeline.topic not in partitions and pipeline.target_partitions is not None:
        _create(admin, pipeline.topic, pipeline.target_partitions, {})


class TargetTopics:
    """Whether the topics that rows name are there; each is asked for once.

    Without it a row with a wrong topic would cost librdkafka's half minute of hoping, or make the topic.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: QuietAdmin | None = None
        self._known: set[str] = set()

    def require(self, topic: str) -> None:
        """
        :raises ConfigurationError: there is no such topic.
        """
        if topic in self._known:
            return
        self._admin = self._admin or QuietAdmin(self._settings)
        if not _is_there(self._admin, topic):
            raise missing_topic(topic, self._settings)
        self._known.add(topic)


def missing_topic(topic: str, settings: KafkaSettings) -> ConfigurationError:
    return ConfigurationError(
        f"There is no topic {topic} on the Kafka cluster at {settings.bootstrap_servers}.",
        remedy="Create it, or correct the name; a topic that one may not describe looks absent.",
    )


def partition_counts(admin: QuietAdmin, topics: list[str]) -> dict[str, int]:
    """How many partitions each topic has; missing ones are absent. Asking does not make a topic."""
    found = {}
    try:
        answers = admin.client.describe_topics(TopicCollection(topics), request_timeout=_CALL_SECONDS)
    except ValueError as error:  # librdkafka's own check of the names
        raise ConfigurationError(f"{topics[0]!r} is not a name of a topic: {error}.") from None
    for topic, future in answers.items():
        try:
            found[topic] = len(future.result().partitions)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
                raise admin.explain(error, f"describing topic {topic}") from error
    return found


def _is_there(admin: QuietAdmin, topic: str) -> bool:
    """Whether a topic exists; asked for a while, since a broker may hear of a new topic later than its neighbours."""
    deadline = time.monotonic() + _NEWS_SECONDS
    while topic not in partition_counts(admin, [topic]):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _create(admin: QuietAdmin, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    try:
        brokers = len(admin.client.list_topics(timeout=_CALL_SECONDS).brokers)
    except KafkaException as error:
        raise admin.explain(error, "asking for the brokers") from error
    new = NewTopic(topic, num_partitions=partitions, replication_factor=min(3, brokers), config=dict(config))
    try:
        admin.client.create_topics([new], operation_timeout=_CALL_SECONDS)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another run was faster
            raise admin.explain(error, f"creating topic {topic}") from error
    deadline = time.monotonic() + _CALL_SECONDS
    while topic not in partition_counts(admin, [topic]):  # the controller has it; the brokers hear of it a moment later
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"Topic {topic} was created, but the brokers do not know it after {_CALL_SECONDS:.0f} s.",
                remedy="Check the cluster's controller, and try again.",
            )
        time.sleep(_POLL_SECONDS)


def _check_settings(admin: QuietAdmin, topics: list[str]) -> None:
    if not topics:
        return
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for resource, future in admin.client.describe_configs(resources, request_timeout=_CALL_SECONDS).items():
        entries: dict[str, Any] = admin.answer(future, f"reading the settings of topic {resource.name}")
        policy, lag = entries["cleanup.policy"].value, int(entries["min.compaction.lag.ms"].value)
        if policy != "compact":
            raise ConfigurationError(
                f"Topic {resource.name} has cleanup.policy={policy}.",
                expected="compact, or what is done would be forgotten and written again",
                remedy=f"Set cleanup.policy=compact on {resource.name}.",
            )
        if lag < COMPACTION_LAG_MS:
            raise ConfigurationError(
                f"Topic {resource.name} has min.compaction.lag.ms={lag}.",
                expected=f"{COMPACTION_LAG_MS} or more, or compaction could remove a record under a reader",
                remedy=f"Set min.compaction.lag.ms={COMPACTION_LAG_MS} on {resource.name}.",
            )
