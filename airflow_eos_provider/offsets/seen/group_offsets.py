"""The source offsets of a whole group: the global topic, each connector's own, and what its tasks read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.source_offsets import Hidden, Offset, OffsetRecord, combined
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.partition_writers import Written
from airflow_eos_provider.kafka.read.topic_ends import UnknownTopicError
from airflow_eos_provider.offsets import user_json
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic, has_strayed
from airflow_eos_provider.offsets.stores import OffsetStores, Store, is_elsewhere

#: The name of an own store that is not known.
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class SeenOffset:
    """One source offset, and how it was written."""

    offset: Offset  #: as it stands; where it is in an open transaction, as it will stand if that is committed
    written: Written  #: its producer and its transaction's outcome
    leftover: bool = False  #: whether it belongs to no connector that exists
    #: Whether the topic that the tasks read has a record of its key, or a removal, in another partition than the hash
    #: of the key says, as where the topic got more partitions.
    strayed: bool = False

    @property
    def hidden(self) -> tuple[Hidden, ...]:
        """Why Connect's REST API does not show it, or not surely so."""
        return (*self.offset.hidden, Hidden.STRAYED) if self.strayed else self.offset.hidden

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        record = self.offset.record
        return {
            "connector": record.key.connector,
            "partition": record.key.partition,
            "offset": record.offset,
            "removes": record.is_removed,
            "topic": record.topic,
            "own": self.offset.own,
            "read": self.offset.is_read,
            "kafka_partition": record.kafka_partition,
            "position": record.position,
            "timestamp_ms": record.timestamp_ms,
            "producer_id": self.written.producer_id,
            "committed": self.written.is_committed,
            "outcome": str(self.written.outcome),
            "leftover": self.leftover,
            "hidden": [str(why) for why in self.hidden],
            "key": record.key.raw.decode(errors="backslashreplace"),
            "under": [_place(other) for other in self.offset.others],
        }


#: So many records of a connector show whether its topic got more partitions: that moves every other key at least. The
#: hash of every key would double the time of a list.
_SAMPLE = 100


def _has_strayed(offset: Offset, topic: OffsetsTopic) -> bool:
    """Whether a record of its key does, in a topic."""
    return any(record.topic == topic.name and has_strayed(record, topic) for record in (offset.record, *offset.others))


def _place(record: OffsetRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "kafka_partition": record.kafka_partition,
        "position": record.position,
        "offset": record.offset,
        "removes": record.is_removed,
    }


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Every offsets topic of a group that is known, read to its end."""

    global_topic: OffsetsTopic
    own_topics: Mapping[str, OffsetsTopic]  #: by their stores' names those that connectors have of their own
    connectors: Mapping[str, ConnectorStatus]
    own_topic_of: Mapping[str, str]  #: by connector the name of its own store, of those that have one
    not_read: frozenset[str] = frozenset()  #: the connectors whose own topic is not known, or could not be read

    def of(self, connector: str) -> Iterator[SeenOffset]:
        """A connector's offsets by key, then what open transactions hold of them."""
        has_own = connector in self.own_topic_of
        own = self.own_topics.get(self.own_topic_of.get(connector, ""))  # its first task makes it
        topics = [(topic, topic is own) for topic in (own, self.global_topic) if topic]
        standing = combined(
            (own.committed.get(connector, ()) if own else ()) if has_own else None,
            self.global_topic.committed.get(connector, ()),
        )
        waiting = (
            Offset(record, is_own, is_read=is_own or not has_own)
            for topic, is_own in topics
            for record in topic.waiting.get(connector, ())
        )
        read = own if has_own else self.global_topic
        some = islice(read.committed.get(connector, ()), _SAMPLE) if read else ()
        raised = read if read and any(has_strayed(record, read) for record in some) else None
        return (
            SeenOffset(offset, self._written(offset), strayed=raised is not None and _has_strayed(offset, raised))
            for offset in chain(standing, waiting)
        )

    def leftovers(self) -> Iterator[SeenOffset]:
        """What stands in the topics and belongs to no connector that exists: deleted ones', and keys of nobody.

        A topic in another Kafka cluster may be that of another Connect cluster, too, so what is there is left out.
        """
        own = (topic for topic in self.own_topics.values() if not is_elsewhere(topic.name))
        return (
            SeenOffset(Offset(record, own=topic is not self.global_topic), topic.written(record), leftover=True)
            for topic in (self.global_topic, *own)
            for by_connector in (topic.committed, topic.waiting)
            for connector, records in by_connector.items()
            if connector not in self.connectors
            for record in records
            if not record.is_removed
        )

    def known(self) -> list[str]:
        """The source connectors, by name; a connector of an unknown type is counted among them."""
        return sorted(name for name, status in self.connectors.items() if status.type != "sink")

    def _written(self, offset: Offset) -> Written:
        topic = self.own_topics[offset.record.topic] if offset.own else self.global_topic
        return topic.written(offset.record)


def read_group_offsets(
    stores: OffsetStores,
    connectors: Mapping[str, ConnectorStatus],
    *,
    only: Iterable[str] | None = None,
    headers: bool = False,
    unknown: Callable[[str, EosError], None] | None = None,
) -> GroupOffsets:
    """Read the offsets topics of a group.

    :param unknown: called with a connector whose own topic is not known, or is in another Kafka cluster and cannot be
        read, and why. What the global topic has of it is then taken as not read by its tasks.
    """
    wanted = connectors if only is None else {name: connectors[name] for name in only if name in connectors}
    own, names, not_read = dict[str, Store](), dict[str, str](), set[str]()
    for connector, status in wanted.items():
        try:
            store = None if status.type == "sink" else stores.own(connector, status.config)
        except EosError as error:
            _take_note(unknown, connector, error)
            names[connector] = UNKNOWN
            not_read.add(connector)
            continue
        if store is not None:
            names[connector] = store.name
            if store.name not in own or (store.is_described and not own[store.name].is_described):
                own[store.name] = store

    # First, so that a task that runs is never seen to have more in the global topic, where its copies go, than here.
    global_topic = stores.read(stores.global_store, headers=headers)
    own_topics = {}
    for name, store in sorted(own.items()):
        try:
            own_topics[name] = stores.read(store, headers=headers)
        except UnknownTopicError:  # its first task makes it
            continue
        except EosError as error:
            for connector in [one for one, its in names.items() if its == name]:
                _take_note(unknown if store.is_elsewhere else None, connector, error)
                not_read.add(connector)
    return GroupOffsets(global_topic, own_topics, dict(connectors), names, frozenset(not_read))


def _take_note(unknown: Callable[[str, EosError], None] | None, connector: str, error: EosError) -> None:
    if unknown is None:
        raise error
    unknown(connector, error)


def matching(offsets: Iterable[SeenOffset], where: Mapping[str, Any]) -> Iterator[SeenOffset]:
    """The offsets whose source partition has all of these members."""
    return (seen for seen in offsets if user_json.contains(seen.offset.record.key.partition, where))
