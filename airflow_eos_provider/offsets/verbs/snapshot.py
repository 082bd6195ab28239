"""A snapshot of offsets topics, each read once, and what a request writes according to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.read.topic_ends import UnknownTopicError
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.stores import OffsetStores, Store
from airflow_eos_provider.offsets.verbs import offset_changes
from airflow_eos_provider.offsets.verbs.offset_changes import Places, Write
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb, Wanted


class OffsetsReader:
    """One look at the offsets topics of a group.

    :param new_partitions: how many a topic has that is not there yet.
    :ivar topics: by the names of their stores those that were read, in their order.
    """

    def __init__(self, stores: OffsetStores, state: ClusterState, new_partitions: int) -> None:
        self._stores = stores
        self._state = state
        self._new_partitions = new_partitions
        self.topics: dict[str, OffsetsTopic] = {}

    def writes(self, request: OffsetsRequest, kafka_cluster_id: str, group_id: str) -> list[Write]:
        """What a request writes, from the offsets as they are."""
        name = request.connector
        if request.verb is Verb.PRUNE:
            if self._exists(name):
                raise RefusedError(
                    f"Connector {name} exists: its offsets are not leftovers.",
                    remedy=f"To let it start from the beginning: 'eos offsets reset {name}'.",
                )
            # In another Kafka cluster the topic may be that of another group, too.
            return offset_changes.reset(Places(name, [self.global_topic()]), {})
        if request.verb is Verb.MIGRATE:
            return offset_changes.migrate(name, self._of(name), self._target(request))
        places = Places(name, self._of(name))
        match request.verb:
            case Verb.RESET:
                return offset_changes.reset(places, request.where)
            case Verb.ALTER:
                return offset_changes.alter(places, _wanted(request, places), unlike=request.unlike)
            case Verb.COPY:
                if request.file:
                    return offset_changes.copy_saved(request.source, backup.read(Path(request.file)), places)
                return offset_changes.copy(request.source, self._of(request.source), places)
            case Verb.RESTORE:
                saved = backup.read(Path(request.file))
                if not request.from_elsewhere:
                    offset_changes.require_same_origin(saved, kafka_cluster_id, group_id, places.topics)
                return offset_changes.restore(places, saved)

    def require_one_place(self, request: OffsetsRequest) -> None:
        """Go on only if the tasks will find what a request writes, see :func:`offset_changes.require_one_place`."""
        if request.verb is not Verb.PRUNE:
            exists = self._exists(request.connector)
            offset_changes.require_one_place(request.connector, self._target(request), exists=exists)

    def checked_offsets(self, request: OffsetsRequest) -> list[tuple[Any, Any]]:
        """The new offsets of an alteration that Connect can check: those whose keys are spelt as Connect spells them.

        It would write any other one under a second key. A removal fails in Connect where exactly-once is on and the
        connector has an offsets topic of its own.
        """
        name = request.connector
        if request.verb is not Verb.ALTER or not self._exists(name):
            return []
        places = Places(name, self._of(name))
        return [
            (one.partition, one.offset)
            for one in _wanted(request, places)
            if one.offset is not None and places.keys_of(one.partition) == {offset_key(name, one.partition)}
        ]

    def global_topic(self) -> OffsetsTopic:
        """The workers' ``offset.storage.topic``."""
        return self._read(self._stores.global_store)

    def _target(self, request: OffsetsRequest) -> OffsetsTopic:
        """The topic that the connector's tasks read afterwards.

        A new own topic that is not there is empty, and has the partitions that Connect would give it.
        """
        name = request.connector
        if request.verb is not Verb.MIGRATE:
            return self._of(name)[0]
        own = self._stores.own(name, {**self._config_of(name), OWN_TOPIC: request.own_topic or ""})
        return self._read(own, may_be_missing=True) if own else self.global_topic()

    def _exists(self, connector: str) -> bool:
        return connector in self._state.connectors

    def _config_of(self, connector: str) -> Mapping[str, Any]:
        """The configuration of a connector; empty if there is none of that name."""
        found = self._state.connectors.get(connector)
        return found.config if found else {}

    def _of(self, connector: str) -> list[OffsetsTopic]:
        """The topics of a connector's offsets, its own before the global one."""
        own = self._stores.own(connector, self._config_of(connector))
        # The name of one in another Kafka cluster may follow from the workers' mode: its first task makes it.
        found = [self._read(own, may_be_missing=own.is_elsewhere)] if own else []
        return [*found, self.global_topic()]

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


def _wanted(request: OffsetsRequest, places: Places) -> Sequence[Wanted]:
    """The offsets of an alteration."""
    return (
        offset_changes.one_for_each(places, request.where, request.wanted[0].offset) if request.each else request.wanted
    )
