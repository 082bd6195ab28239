"""The facts about a group before a mode is switched on: its connectors, workers, brokers and readers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.topics.internal_topics import WorkerFiles


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What one worker says to a connector's configuration.

    It is asked with ``exactly.once.support=required`` and an offsets topic of its own, so that it answers as it would
    in the mode ``enabled`` whatever mode it runs in, see :func:`~airflow_eos_provider.preflight.worker_answers.asked`.

    :param problem: why there is no answer; empty if there is one.
    """

    worker_id: str
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    properties: frozenset[str] = frozenset()
    problem: str = ""
    has_plugin: bool = True


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """One connector.

    :param type: ``source``, ``sink`` or ``unknown``.
    :param config: as REST gives it; never shown as a whole: it may hold secrets.
    :param running: how many of them have not failed.
    :param topics: that it writes, by Connect's tracking and by its configuration.
    :param unseen: those of them that the brokers do not show: they are gone, or may not be described.
    :param topics_unknown: why Connect does not say which topics it has written; empty if it does.
    :param elsewhere: addresses of the brokers that its producers write to, if they are not known as its workers'.
    """

    name: str
    type: str
    config: Mapping[str, str] = field(repr=False)
    tasks: int = 0
    running: int = 0
    answers: tuple[WorkerAnswer, ...] = ()
    topics: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    topics_unknown: str = ""
    elsewhere: str = ""

    @property
    def plugin(self) -> str:
        """The connector's class, as its configuration names it."""
        return self.config.get("connector.class", "")

    @property
    def is_mirror_source(self) -> bool:
        """Whether it is MirrorMaker's source; Connect also takes the class by its short names."""
        return self.plugin.rpartition(".")[2] in ("MirrorSourceConnector", "MirrorSource")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The workers' Kafka cluster.

    :param max_timeout_ms: the least ``transaction.max.timeout.ms`` of its brokers; None if that is not known.
    :param max_message_bytes: by topic, as far as that is known.
    :param rates: by topic the records a second appended in the last minute, markers included, where that was measured.
    """

    max_timeout_ms: int | None = None
    problem: str = ""
    max_message_bytes: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer group that has committed offsets in topics of source connectors, or has their partitions assigned.

    :param sink: the sink connector of this group of workers whose group it is; empty if it is none.
    """

    group: str
    topics: frozenset[str]
    clients: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    sink: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the rules look at.

    :param readers: None where it was not asked who reads.
    :param readers_unknown: why the readers are not, or not all, known; empty if they are.
    :param silent_sinks: sink connectors that were not asked for, and count as readers only.
    """

    group_id: str
    mode: Mode
    connectors: tuple[ConnectorFacts, ...]
    files: WorkerFiles = field(default_factory=WorkerFiles)
    brokers: BrokerFacts = BrokerFacts()
    readers: tuple[Reader, ...] | None = ()
    readers_unknown: str = ""
    silent_sinks: tuple[ConnectorFacts, ...] = ()

    @property
    def sources(self) -> tuple[ConnectorFacts, ...]:
        """The connectors that are not known to be sinks."""
        return tuple(connector for connector in self.connectors if connector.type != "sink")
