"""A snapshot of offsets topics, each read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC, Role
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.read.ends import UnknownTopicError
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.offsets.stores import OffsetStores, Store
from airflow_eos_provider.offsets.topic import OffsetsTopic
from airflow_eos_provider.offsets.verbs.changes import Places


class OffsetsReader:
    """One look at the offsets topics of a group.

    :param new_partitions: how many a topic has that is not there yet.
    :ivar topics: by the names of their stores those that were read, in their order.
    """

    def __init__(
        self,
        stores: OffsetStores,
        state: ClusterState,
        new_partitions: int = Role.OWN.default_partitions,
    ) -> None:
        self._stores = stores
        self._state = state
        self._new_partitions = new_partitions
        self.topics: dict[str, OffsetsTopic] = {}

    def exists(self, connector: str) -> bool:
        """Whether there is a connector of this name."""
        return connector in self._state.connectors

    def config_of(self, connector: str) -> Mapping[str, Any]:
        """The configuration of a connector; empty if there is none of that name."""
        found = self._state.connectors.get(connector)
        return found.config if found else {}

    def of(self, connector: str) -> list[OffsetsTopic]:
        """The topics of a connector's offsets, its own before the global one."""
        own = self._stores.own(connector, self.config_of(connector))
        # The name of one in another Kafka cluster may follow from the workers' mode: its first task makes it.
        found = [self._read(own, may_be_missing=own.is_elsewhere)] if own else []
        return [*found, self.global_topic()]

    def places(self, connector: str) -> Places:
        """Where the offsets of a connector are."""
        return Places(connector, self.of(connector))

    def place_with(self, connector: str, own_topic: str) -> OffsetsTopic:
        """The topic that the tasks of a connector read if it is given an own topic.

        :param own_topic: ``offsets.storage.topic``, empty for none. One that is not there is empty, and has the
            partitions that Connect would give it.
        """
        own = self._stores.own(connector, {**self.config_of(connector), OWN_TOPIC: own_topic})
        return self._read(own, may_be_missing=True) if own else self.global_topic()

    def global_topic(self) -> OffsetsTopic:
        """The workers' ``offset.storage.topic``."""
        return self._read(self._stores.global_store)

    def _read(self, store: Store, *, may_be_missing: bool = False) -> OffsetsTopic:
        name = store.name
        if name not in self.topics:
            try:
                self.topics[name] = self._stores.read(store)
            except UnknownTopicError as error:
                if not may_be_missing:
                    raise ConfigurationError(
                        error.found, remedy="A task of the connector makes it; or 'eos topics create'."
                    ) from error
                ends = dict.fromkeys(range(self._new_partitions), 0)
                self.topics[name] = OffsetsTopic(name, None, ends, {}, {}, TopicWriters(None, {}, ends, {}))
        return self.topics[name]
