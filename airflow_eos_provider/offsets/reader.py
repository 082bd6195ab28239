"""Offsets topics as they are at one look, each read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_eos_provider.connect.config_topic import ClusterState
from airflow_eos_provider.connect.internal_topics import OWN_TOPIC, Role
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.ends import UnknownTopicError
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.kafka.writers import TopicWriters
from airflow_eos_provider.offsets.changes import Places
from airflow_eos_provider.offsets.group import Progress
from airflow_eos_provider.offsets.topic import OffsetsTopic, read_offsets_topic


class OffsetsReader:
    """One look at the offsets topics of a group.

    :param session: of its Kafka cluster.
    :param state: its config topic.
    :param global_topic: the workers' ``offset.storage.topic``.
    :param progress: called with a topic's name, offsets passed and offsets in all.
    :param new_partitions: how many a topic has that is not there yet.
    :ivar topics: by name those that were read, in their order.
    """

    def __init__(
        self,
        session: Session,
        state: ClusterState,
        global_topic: str,
        progress: Progress | None = None,
        new_partitions: int = Role.OWN.default_partitions,
    ) -> None:
        self._session = session
        self._state = state
        self._progress = progress
        self._new_partitions = new_partitions
        self.global_topic = global_topic
        self.topics: dict[str, OffsetsTopic] = {}

    def exists(self, connector: str) -> bool:
        """Whether there is a connector of this name."""
        return connector in self._state.connectors

    def config_of(self, connector: str) -> Mapping[str, Any]:
        """The configuration of a connector; empty if there is none of that name."""
        found = self._state.connectors.get(connector)
        return found.config if found else {}

    def own_topic_of(self, connector: str) -> str | None:
        """The name of a connector's own offsets topic; None if it uses the global one only."""
        own = self.config_of(connector).get(OWN_TOPIC)
        return own if own and own != self.global_topic else None

    def of(self, connector: str) -> list[OffsetsTopic]:
        """The topics of a connector's offsets, its own before the global one.

        :raises ConfigurationError: a topic is not there, or may not be read.
        :raises UnreachableError: no broker answers.
        """
        own = self.own_topic_of(connector)
        return [self.topic(name) for name in ([own] if own else []) + [self.global_topic]]

    def places(self, connector: str) -> Places:
        """Where the offsets of a connector are. Errors as in :meth:`of`."""
        return Places(connector, self.of(connector))

    def topic(self, name: str, *, may_be_missing: bool = False) -> OffsetsTopic:
        """One topic.

        :param may_be_missing: one that is not there is empty, and has the partitions that Connect would give it.
        """
        if name not in self.topics:
            try:
                self.topics[name] = read_offsets_topic(self._session, name, progress=self._progress_of(name))
            except UnknownTopicError as error:
                if not may_be_missing:
                    raise ConfigurationError(
                        error.found, remedy="A task of the connector makes it; or 'eos topics create'."
                    ) from error
                ends = dict.fromkeys(range(self._new_partitions), 0)
                self.topics[name] = OffsetsTopic(name, None, ends, {}, {}, TopicWriters(None, {}, ends, {}))
        return self.topics[name]

    def _progress_of(self, topic: str) -> Callable[[int, int], None] | None:
        progress = self._progress
        return progress and (lambda passed, total: progress(topic, passed, total))
