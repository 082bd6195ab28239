"""A Connect group's source offsets: the records of an offsets topic, and how a task reads them.

A record's key is ``["<connector>",{<source partition>}]`` and its value the offset, a null value the offset's removal.
Connect finds offsets by the *bytes* of their keys. Its REST API reads each key into a ``HashMap`` and writes it again,
so a key that is spelled differently (another order of the map, other escapes) is shown without its offset and is missed
by a reset. Here a key keeps its bytes, and says why REST would not find it.

Rules: ``KafkaOffsetBackingStore``, ``OffsetUtils`` and ``ConnectorOffsetBackingStore`` (4.3.1).
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import merge
from itertools import groupby, repeat
from typing import Any

from airflow_eos_provider.connect.topics.jackson import encode, hash_map_order
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord


class Hidden(StrEnum):
    """Why Connect's REST API does not show an offset, or shows it without its value."""

    NOT_A_KEY = "not a key of Connect"
    NULL_PARTITION = "null source partition"
    SPELLING = "key spelt otherwise than Connect writes it"
    NOT_AN_OFFSET = "not an offset of Connect"
    TWICE = "the same key in several partitions"
    STRAYED = "in another partition than the hash of its key says"
    NOT_READ = "in the global topic only, which tasks with an own topic do not read"


@dataclass(frozen=True)
class OffsetKey:
    """The key of an offset, by its bytes.

    :param raw: as they stand in the topic, and as a record that removes the offset has to spell them.
    """

    raw: bytes

    @cached_property
    def _parts(self) -> tuple[str | None, Any]:
        """Connector and source partition; without a connector it is no key of Connect."""
        document = _parsed(self.raw)
        if isinstance(document, list) and len(document) == 2 and isinstance(document[0], str):
            connector, partition = document
            if partition is None or isinstance(partition, dict):
                return connector, partition
        return None, None

    @property
    def connector(self) -> str | None:
        """Its connector's name; None if Connect would not take the key for one of its own."""
        return self._parts[0]

    @property
    def partition(self) -> Mapping[str, Any] | None:
        """The source partition, None where it is null (or where the key is not Connect's)."""
        return self._parts[1]  # type: ignore[no-any-return]

    @cached_property
    def hidden(self) -> Hidden | None:
        """Why REST does not find what stands under this key; None if it does."""
        if self.connector is None:
            return Hidden.NOT_A_KEY
        if self.partition is None:
            return Hidden.NULL_PARTITION
        try:
            spelt = offset_key(self.connector, self.partition)
        except ConfigurationError:  # its order in a HashMap is not known
            return Hidden.SPELLING
        return None if spelt == self.raw else Hidden.SPELLING


def offset_key(connector: str, partition: Mapping[str, Any] | None) -> bytes:
    """A key as Connect's REST API spells it."""
    return encode([connector, None if partition is None else hash_map_order(dict(partition))])


def offset_value(offset: Mapping[str, Any]) -> bytes:
    """A value as Connect's REST API spells it."""
    return encode(hash_map_order(dict(offset)))


#: By partition and key: offset, timestamp, value and headers, as bytes of this process.
Packed = dict[int, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The newest record of a key in one partition of an offsets topic.

    :param position: offset of the record there.
    :param value: None for a removal.
    :param headers: names and contents; Connect writes none. Empty of a read that did not ask for them.
    """

    key: OffsetKey
    topic: str
    kafka_partition: int
    position: int
    timestamp_ms: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def offset(self) -> Mapping[str, Any] | None:
        """The source offset; None where it is removed or is no offset."""
        document = None if self.value is None else _parsed(self.value)
        return document if isinstance(document, dict) else None

    @property
    def is_removed(self) -> bool:
        return self.value is None


#: Records by connector, each one's by key and partition; under None those whose key is none of Connect's.
ByConnector = Mapping[str | None, Iterable[OffsetRecord]]


class OffsetLog:
    """An offsets topic, replayed record by record; partitions may mingle.

    A key belongs in one partition, by its hash. In a topic whose number of partitions was raised, or that another
    tool has written to, it may stand in several: compaction never joins them, and what a worker makes of it depends on
    which it reads last. So the newest record of a key is kept for each partition.

    A topic may have millions of offsets. So what is kept of each is the bytes of its key and one string of bytes with
    all the rest: some 200 bytes in all for a short key and value. Each :class:`OffsetRecord` is made when it is needed.

    :param outcome: how a record's transaction ended; by default every record counts as committed.
    """

    def __init__(self, topic: str, outcome: Callable[[LogRecord], Outcome] = lambda record: Outcome.COMMITTED) -> None:
        self._topic = topic
        self._outcome = outcome
        self._newest: Packed = {}
        self._open: Packed = {}
        self._aborted: Packed = {}

    def take(self, records: Iterable[LogRecord]) -> None:
        """Go on with further records, of each partition in the order of the log."""
        for record in records:
            outcome = self._outcome(record)
            if record.key is None:  # Connect passes over it
                continue
            if outcome not in (Outcome.OPEN, Outcome.ABORTED):
                kept = self._newest
                if self._aborted:
                    self._aborted.get(record.partition, {}).pop(record.key, None)
            else:
                kept = self._open if outcome is Outcome.OPEN else self._aborted
            rest = (record.offset, record.timestamp_ms, record.value, record.headers)
            kept.setdefault(record.partition, {})[record.key] = marshal.dumps(rest)

    def committed(self) -> ByConnector:
        """The newest committed records, removals included."""
        return _by_connector(self._topic, self._newest)

    def open(self) -> ByConnector:
        """The newest records of open transactions, which count once these are committed."""
        return _by_connector(self._topic, self._open)

    def aborted(self) -> ByConnector:
        """The newest records of aborted transactions that no committed one of their keys has followed."""
        return _by_connector(self._topic, self._aborted)


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """The newest records of one connector in a topic, by key and partition; each is made when it is asked for."""

    topic: str
    packed: Packed = field(repr=False)
    keys: Mapping[int, Sequence[bytes]] = field(repr=False)

    def __iter__(self) -> Iterator[OffsetRecord]:
        for raw, partition in merge(*(zip(raws, repeat(p), strict=False) for p, raws in self.keys.items())):
            offset, timestamp_ms, value, headers = marshal.loads(self.packed[partition][raw])
            contents = tuple((name, _content(content)) for name, content in headers or ())
            yield OffsetRecord(OffsetKey(raw), self.topic, partition, offset, timestamp_ms, value, contents)


def _by_connector(topic: str, packed: Packed) -> ByConnector:
    keys: dict[str | None, dict[int, list[bytes]]] = {}
    for partition in sorted(packed):
        for raw in sorted(packed[partition]):
            keys.setdefault(OffsetKey(raw).connector, {}).setdefault(partition, []).append(raw)
    names = sorted(keys, key=lambda connector: connector or "")
    return {connector: NewestRecords(topic, packed, keys[connector]) for connector in names}


def _content(header: str | bytes | None) -> bytes | None:
    return header.encode() if isinstance(header, str) else header


@dataclass(frozen=True, slots=True)
class Offset:
    """One source offset as a task sees it.

    :param own: whether that is the connector's own topic.
    :param is_read: whether its tasks read that topic; with a topic of their own they do not read the global one.
    :param others: further records of this key: the global topic's under an own one, other partitions of a topic.
    """

    record: OffsetRecord
    own: bool
    others: tuple[OffsetRecord, ...] = ()
    is_read: bool = True

    @property
    def hidden(self) -> tuple[Hidden, ...]:
        """Why REST does not show it, or not surely so."""
        found = [] if self.is_read else [Hidden.NOT_READ]
        if self.record.key.hidden:
            found.append(self.record.key.hidden)
        if not self.record.is_removed and self.record.offset is None:
            found.append(Hidden.NOT_AN_OFFSET)
        places = [r for r in (self.record, *self.others) if r.topic == self.record.topic and not r.is_removed]
        return (*found, Hidden.TWICE) if len(places) > 1 else tuple(found)


def combined(own: Iterable[OffsetRecord] | None, global_: Iterable[OffsetRecord]) -> Iterator[Offset]:
    """A connector's offsets: those that its tasks read, and those of the global topic that they do not.

    A connector with a topic of its own reads that one alone, although KIP-618 promises the global one beneath it:
    ``KafkaOffsetBackingStore.get`` answers with every key that it is asked for, null where it has none, and
    ``ConnectorOffsetBackingStore.get`` puts these nulls over the global topic's offsets.

    :param own: newest records of the connector's own topic, by key; None if it has no such topic.
    :returns: by key; keys that are removed everywhere are not among them.
    """

    def raw_key(place: tuple[bool, OffsetRecord]) -> bytes:
        return place[1].key.raw

    places = merge(zip(repeat(True), own or (), strict=False), zip(repeat(False), global_, strict=False), key=raw_key)
    for _, of_one_key in groupby(places, raw_key):
        standing = list(of_one_key)
        live = [(is_own, record) for is_own, record in standing if not record.is_removed]
        if live:
            # Among several partitions of one topic the newest is what a worker that has followed it holds.
            is_own, record = max(live, key=lambda place: (place[0], place[1].timestamp_ms, place[1].position))
            others = tuple(other for _, other in standing if other is not record)
            yield Offset(record, is_own, others, is_read=is_own or own is None)


def _parsed(raw: bytes) -> Any:
    """JSON as it stands; None if it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
