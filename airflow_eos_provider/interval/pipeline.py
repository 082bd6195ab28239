"""A pipeline: where its records go, where its ledger is, and the ids under which its runs write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings, is_secret
from airflow_eos_provider.stored import members

#: What Kafka allows in a topic's name, from which ``@`` and ``/`` are absent: the parts of a run's name stay apart.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,180}")

#: Topics' own rule is the same, with room for more.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

#: Properties of the producers that carry the proof; a user may not set them.
_OURS = frozenset(
    {
        "transactional.id",
        "transaction.timeout.ms",
        "enable.idempotence",
        "partitioner",
        "acks",
        "bootstrap.servers",
        "request.required.acks",
        "enable.gapless.guarantee",
    }
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline of interval runs.

    :param name: its name, the part that Connect's offsets have the connector's name in.
    :param group_id: prefix of its topics and transactional ids. Never the group of a Connect cluster.
    :param kafka: how to reach the brokers.
    :param topic: where records go that do not name a topic themselves.
    :param ledger_topic: its own offsets topic, ``<group_id>-<name>-offsets`` if not given.
    :param control_topic: the group's control topic, ``<group_id>-configs`` if not given.
    :param target_partitions: partitions of the target topic if it is yet to be made; None: it must be there.
    :param ledger_partitions: partitions of a ledger topic that is yet to be made.
    :param transaction_timeout_ms: how long one slice's transaction may take, milliseconds. A dead task's transaction
        may hold up its siblings for as long. The broker's limit is 15 minutes unless set.
    :param producer: further librdkafka properties of the producers that write records, such as compression.type.
    :param run_header: name of a header with a record's run, so that an interval's records are distinguishable in a
        topic of many; None for no such header.
    :param visibility_timeout_ms: how long ``complete`` may wait, milliseconds, until readers of committed records get
        past the interval's records, which an open transaction of another producer can hold back. The default is the
        brokers' default transaction.max.timeout.ms, and a minute in which they find expired transactions.
    :param allow_single_in_sync_replica: accept replicated topics with ``min.insync.replicas=1``, although such a
        topic loses an acknowledged record if its partition's leader is lost.
    :param allow_expired_records: write rows whose own timestamps are older than the target's ``retention.ms``. Brokers
        delete such records soon, often within minutes.
    :raises ConfigurationError: a name or a property cannot be used.
    """

    name: str
    group_id: str
    kafka: KafkaSettings
    topic: str | None = None
    ledger_topic: str = ""
    control_topic: str = ""
    ledger_partitions: int = 5
    transaction_timeout_ms: int = 60_000
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    run_header: str | None = None
    target_partitions: int | None = None
    visibility_timeout_ms: int = 960_000
    allow_single_in_sync_replica: bool = False
    allow_expired_records: bool = False

    def __post_init__(self) -> None:
        for what, text in (("pipeline", self.name), ("group", self.group_id)):
            if not _NAME.fullmatch(text):
                raise ConfigurationError(
                    f"A {what} cannot be named {text!r}.", expected="letters, digits, '.', '_' and '-', as in topics"
                )
        if self.topic is not None and (self.topic in (".", "..") or not _TOPIC.fullmatch(self.topic)):
            raise ConfigurationError(
                f"A topic cannot be named {self.topic!r}.",
                expected="1 to 249 letters, digits, '.', '_' and '-'; no topic at all where each row names its own",
            )
        object.__setattr__(self, "ledger_topic", self.ledger_topic or f"{self.group_id}-{self.name}-offsets")
        object.__setattr__(self, "control_topic", self.control_topic or f"{self.group_id}-configs")
        object.__setattr__(self, "producer", MappingProxyType({k: str(v) for k, v in self.producer.items()}))
        ours = sorted(set(self.producer) & _OURS)
        if ours:
            raise ConfigurationError(
                f"The pipeline {self.name} may not set the producer's {', '.join(ours)}.",
                remedy="Remove it: exactly once depends on the value that is set here.",
            )
        if self.topic in (self.ledger_topic, self.control_topic) or self.ledger_topic == self.control_topic:
            raise ConfigurationError(
                f"The pipeline {self.name} uses one topic for two things.",
                expected="a target topic, a ledger topic and a control topic that differ",
            )
        if not 1_000 <= self.transaction_timeout_ms <= 900_000:
            raise ConfigurationError(
                f"The transaction timeout is {self.transaction_timeout_ms} ms.",
                expected="1000 to 900000 (the broker's transaction.max.timeout.ms bounds it, too)",
            )
        if self.visibility_timeout_ms < 0:
            raise ConfigurationError(
                f"The visibility timeout is {self.visibility_timeout_ms} ms.", expected="0 or more"
            )
        for what, partitions in (("ledger", self.ledger_partitions), ("target topic", self.target_partitions)):
            if partitions is not None and partitions < 1:
                raise ConfigurationError(f"The {what} is to have {partitions} partitions.", expected="1 or more")

    # Transactional ids: one prefixed ACL, ``<group>-<pipeline>``, covers them all.

    def transactional_id(self, run: Run, task: int) -> str:
        """The id of a run's task, as of a connector's task: ``<group>-<run>-<task>``."""
        return f"{self.task_id_prefix(run)}{task}"

    def task_id_prefix(self, run: Run) -> str:
        """What all ids of a run begin with; followed by digits only, it is a task's (the coordinator's has it too)."""
        return f"{self.group_id}-{run.name}-"

    def coordinator_id(self, run: Run) -> str:
        """The id of a run's coordinator."""
        return f"{self.task_id_prefix(run)}coordinator"

    @property
    def planner_id(self) -> str:
        """The id under which the pipeline's plans are admitted one at a time."""
        return f"{self.group_id}-{self.name}-planner"

    # The way to the executors

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for executors. It holds the client's credentials: never log it."""
        return {**members(self), "kafka": dict(self.kafka.properties), "producer": dict(self.producer)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Pipeline:
        """The pipeline that :meth:`to_dict` wrote."""
        return cls(**{**document, "kafka": KafkaSettings(document["kafka"])})

    def __repr__(self) -> str:
        shown = {k: "***" if is_secret(k) else v for k, v in sorted(self.producer.items())}
        return f"Pipeline({self.name!r}, group_id={self.group_id!r}, topic={self.topic!r}, {self.kafka}, {shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pipeline.from_dict, (self.to_dict(),))  # read-only mappings do not pickle
