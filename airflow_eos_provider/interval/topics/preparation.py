"""The topics of interval runs: made if missing, and refused if they could lose what the proof rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.topics.pins import Pins, TopicChangedError, TopicPin
from airflow_eos_provider.interval.topics.reserved import require_data
from airflow_eos_provider.interval.topics.timestamps import Retention
from airflow_eos_provider.kafka.kafka_session import Kafka, settings_of
from airflow_eos_provider.kafka.questions import TopicDescription
from airflow_eos_provider.kafka.topics import Topics, missing_topic, needed_in_sync
from airflow_eos_provider.kafka.write.partitioner import missing_partition

#: Compaction leaves records alone for so long. A read that takes longer asks for new ends, for compaction may by then
#: have removed a record below its end on behalf of one above.
COMPACTION_LAG_MS = 3_600_000

#: Plans of thousands of files pass in one record.
_CONTROL_MESSAGE_BYTES = 8_000_000

_INTERNAL: Mapping[str, str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(COMPACTION_LAG_MS)}


def prepare_topics(
    pipeline: Pipeline,
    before_creating: Callable[[Pins], None] = lambda found: None,
    kafka: Kafka | None = None,
) -> tuple[Pins, bool]:
    """Make the pipeline's ledger and control topic if they are missing, and check all of its topics.

    :returns: the topics, and whether the control topic was there before; one just made has nothing to read, and not
        every broker knows it yet.
    :param before_creating: called with the topics as they are; a missing one has no id. It raises if one is not
        missing, but lost.
    """
    topics = Topics(kafka or pipeline.kafka)
    ledger, control, target = pipeline.ledger_topic, pipeline.control_topic, pipeline.topic
    if target:
        require_data(target, pipeline)
    found = topics.describe(_names(pipeline))
    control_was_there = control in found
    if target and target not in found and pipeline.target_partitions is None and not topics.is_there(target):
        raise missing_topic(target, pipeline.kafka)
    _check_settings(topics, pipeline, found)
    before_creating(_pins(pipeline, found))
    if ledger not in found:
        topics.create(ledger, pipeline.ledger_partitions, _INTERNAL)
    if control not in found:
        topics.create(control, 1, {**_INTERNAL, "max.message.bytes": str(_CONTROL_MESSAGE_BYTES)})
    if target and target not in found and pipeline.target_partitions is not None:
        topics.create(target, pipeline.target_partitions, {})
    if len(found) < len(_names(pipeline)):
        found = topics.find(_names(pipeline))
        _check_settings(topics, pipeline, found)  # another may have been faster, and made it otherwise
    return _pins(pipeline, found), control_was_there


def find_topics(pipeline: Pipeline, kafka: Kafka | None = None) -> Pins:
    """The topics that the pipeline has now; one that is missing has no id."""
    return _pins(pipeline, Topics(kafka or pipeline.kafka).find(_names(pipeline)))


def _names(pipeline: Pipeline) -> list[str]:
    return [pipeline.ledger_topic, pipeline.control_topic] + ([pipeline.topic] if pipeline.topic else [])


def _pins(pipeline: Pipeline, found: Mapping[str, TopicDescription]) -> Pins:
    ledger, control, *target = (TopicPin(name, found[name].id if name in found else "") for name in _names(pipeline))
    return Pins(ledger, target[0] if target else None, control)


class TargetTopics:
    """Whether the topics and partitions that rows name are there, and are for data; each topic is asked for once.

    Without it a row with a wrong topic would cost seconds in which the producer hopes to hear of it.
    """

    def __init__(self, pipeline: Pipeline, ledgers: Mapping[str, str], kafka: Kafka) -> None:
        self._pipeline = pipeline
        self._ledgers = ledgers
        self._kafka = kafka
        self._oldest_ms: dict[str, int] = {}
        self._topics: Topics | None = None
        self.known: dict[str, int] = {}

    def prepare(self, topic: str | None) -> None:
        """Connect, and ask for the pipeline's own topic; called before a transaction is open."""
        self._topics = self._topics or Topics(self._kafka)
        if topic is not None:
            self.require(topic)

    def require(self, topic: str, partition: int = -1) -> None:
        if partition < self.known.get(topic, -1):
            return
        require_data(topic, self._pipeline, self._ledgers)
        self._topics = self._topics or Topics(self._kafka)
        found = self._topics.find([topic]).get(topic)
        if found is None:
            raise missing_topic(topic, settings_of(self._kafka))
        if partition >= found.partitions:
            raise missing_partition(topic, partition, found.partitions)
        self.known[topic] = found.partitions

    def require_there(self) -> None:
        """Check, where a write has failed, that none of the topics was deleted meanwhile: the client only times out."""
        assert self._topics is not None
        try:
            there = self._topics.find(list(self.known))
        except EosError:
            return  # the write's own error says more
        if gone := sorted(self.known.keys() - there.keys()):
            raise TopicChangedError(
                f"Topic {gone[0]} was deleted while records were written to it.",
                expected="the topics that the run was started with",
                remedy="Its records are lost. If no slice of the run is committed, abandon it (eos intervals abandon), "
                "create the topic, and write the interval again. Otherwise write it under another pipeline name.",
            )

    def require_kept(self, topic: str, timestamp_ms: int) -> None:
        oldest = self._oldest_ms.get(topic)
        if self._pipeline.allow_expired_records or (oldest is not None and timestamp_ms >= oldest):
            return
        retention = retention_of(topic, self._kafka)
        retention.require_kept(timestamp_ms)
        self._oldest_ms[topic] = retention.oldest_ms


def retention_of(topic: str, kafka: Kafka) -> Retention:
    """How long a topic keeps records by their own time; needs DescribeConfigs."""
    return Retention.of(topic, Topics(kafka).settings_of([topic])[topic])


def _check_settings(topics: Topics, pipeline: Pipeline, found: Mapping[str, TopicDescription]) -> None:
    control = pipeline.control_topic
    if control in found and found[control].partitions != 1:
        raise ConfigurationError(
            f"The control topic {control} has {found[control].partitions} partitions.",
            expected="1, for its records are read in one order",
        )
    names = [name for name in _names(pipeline) if name in found]
    if pipeline.allow_single_in_sync_replica:  # nothing is left to check about the target
        names = [name for name in names if name != pipeline.topic]
    if not names:
        return
    for name, settings in topics.settings_of(names).items():
        if name != pipeline.topic:
            _check_compaction(name, settings)
        if not pipeline.allow_single_in_sync_replica:
            check_in_sync(name, int(settings["min.insync.replicas"]), found[name].replicas)


def check_in_sync(topic: str, in_sync: int, replicas: int) -> None:
    needed = needed_in_sync(replicas)
    if in_sync < needed:
        raise ConfigurationError(
            f"Topic {topic} has min.insync.replicas={in_sync} and {replicas} replicas: a record that is acknowledged "
            "may be on its leader alone, and is lost with it.",
            expected=f"min.insync.replicas={max(needed, replicas - 1)}, at least {needed}",
            remedy=f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
            f"min.insync.replicas={max(needed, replicas - 1)}; or allow_single_in_sync_replica=True in the pipeline, "
            "where a loss is acceptable.",
        )


def _check_compaction(topic: str, settings: Mapping[str, str]) -> None:
    policy, lag = settings["cleanup.policy"], int(settings["min.compaction.lag.ms"])
    if policy != "compact":
        raise ConfigurationError(
            f"Topic {topic} has cleanup.policy={policy}.",
            expected="compact; otherwise Kafka deletes records of written intervals, and they are written again",
            remedy=f"Set cleanup.policy=compact on {topic}.",
        )
    if lag < COMPACTION_LAG_MS:
        raise ConfigurationError(
            f"Topic {topic} has min.compaction.lag.ms={lag}.",
            expected=f"{COMPACTION_LAG_MS} or more, or compaction could remove a record under a reader",
            remedy=f"Set min.compaction.lag.ms={COMPACTION_LAG_MS} on {topic}.",
        )
