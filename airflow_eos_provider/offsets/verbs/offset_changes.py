"""Decides from the current offsets what a change of source offsets writes: alter, reset, restore, migrate, copy.

Every key keeps its bytes: a record is removed under the key that it has, however it is spelt, and in every partition
that has one (in the topic that the tasks read it may have one only, see :func:`require_one_place`). A connector's own
topic and the global one are changed together: tasks read the own one alone, and the other is what they read once the
connector has no such topic any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.topics.jackson import encode
from airflow_eos_provider.connect.topics.source_offsets import OffsetRecord, combined, offset_key, offset_value
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic, has_strayed
from airflow_eos_provider.offsets.seen.backup import Backup
from airflow_eos_provider.offsets.user_json import canonical, contains
from airflow_eos_provider.offsets.verbs.offsets_request import Wanted


@dataclass(frozen=True, slots=True)
class Write:
    """One record that is to be written."""

    topic: str  #: the name of its store
    kafka_partition: int
    key: bytes
    before: bytes | None  #: the value that the key has there now, None for none
    after: bytes | None  #: the new value, None to remove it

    @property
    def place(self) -> tuple[str, int, bytes]:
        """Where it is written, and under which key."""
        return self.topic, self.kafka_partition, self.key

    @property
    def changes(self) -> bool:
        """Whether the value would become another."""
        return self.before != self.after


class Places:
    """Where the offsets of one connector are, removals included.

    :param topics: the topics of its offsets: its own, if it has one, then the global one.
    """

    def __init__(self, connector: str, topics: Sequence[OffsetsTopic]) -> None:
        self.connector = connector
        self.topics = tuple(topics)
        self._records = [r for topic in self.topics for r in topic.committed.get(connector, ())]
        self._values = {(r.topic, r.kafka_partition, r.key.raw): r.value for r in self._records}
        self._partitions: dict[tuple[str, bytes], set[int]] = {}
        for record in self.live():
            self._partitions.setdefault((record.topic, record.key.raw), set()).add(record.kafka_partition)

    def live(self) -> list[OffsetRecord]:
        """Every offset that is not removed, of every topic and partition."""
        return [record for record in self._records if not record.is_removed]

    def keys_of(self, partition: Mapping[str, Any] | None) -> set[bytes]:
        """Every spelling under which a source partition has an offset; that of Connect's REST API where it has none.

        A connector writes its keys in the order of its own map, so the spelling that is there is the one that its
        tasks look for.
        """
        wanted = canonical(partition)
        found = {record.key.raw for record in self.live() if canonical(record.key.partition) == wanted}
        return found or {offset_key(self.connector, partition)}

    def put(self, key: bytes, value: bytes | None) -> list[Write]:
        """Give a key one value in each topic, in the partition where it belongs, and remove it from any other.

        A value that is there already is among them, see :attr:`Write.changes`.

        In the global topic under an own one a value is only replaced, never added: Connect copies it there itself.
        """
        read, *others = self.topics
        replaced = [topic for topic in others if (topic.name, key) in self._partitions]
        return [write for topic in (read, *replaced) for write in self.put_in(topic, key, value)]

    def put_in(self, topic: OffsetsTopic, key: bytes, value: bytes | None) -> list[Write]:
        """Give a key one value in one topic, in the partition where it belongs, and remove it from any other."""
        belongs = partition_of(key, len(topic.ends))
        writes = []
        for kafka_partition in sorted({belongs} | self._partitions.get((topic.name, key), set())):
            before = self._values.get((topic.name, kafka_partition, key))
            after = value if kafka_partition == belongs else None
            writes.append(Write(topic.name, kafka_partition, key, before, after))
        return [write for write in writes if write.before is not None or write.after is not None]


def require_one_place(connector: str, topic: OffsetsTopic, *, exists: bool = True) -> None:
    """Go on only if each key of a connector stands in one partition of the topic that its tasks read.

    A key whose partition moved, since the topic got more partitions, stands in its former one too. A task that starts
    reads the partitions in any order and holds what it reads last (``KafkaOffsetBackingStore``): what stands in the
    former one, also a removal, would now and then come over the offset that its predecessor has committed.
    """
    strayed = {r.key.raw for r in topic.committed.get(connector, ()) if has_strayed(r, topic)}
    if strayed:
        move = (
            f"Move the connector into a topic of its own, new and empty: 'eos offsets migrate {connector} --to own', "
            "with --topic if it has one already. Its offsets go along, and any change after that is made there."
        )
        create = (
            f"Create {connector} stopped (initial_state), with an offsets.storage.topic of its own that is new, and "
            "give the same command again."
        )
        raise RefusedError(
            f"{counted(len(strayed), 'key')} of {connector} {'is' if len(strayed) == 1 else 'are'} in another "
            f"partition of {topic.name} than its hash says, for example because the topic got more partitions. A task "
            "that starts may take the record there, also a removal, for the newest offset.",
            expected="each key in one partition of the topic that the tasks read",
            remedy=move if exists else create,
        )


def reset(places: Places, where: Mapping[str, Any]) -> list[Write]:
    """Remove the offsets of a connector, so that it begins anew."""
    keys = {record.key.raw for record in places.live() if contains(record.key.partition, where)}
    return [write for key in sorted(keys) for write in places.put(key, None)]


def alter(places: Places, wanted: Sequence[Wanted], *, unlike: bool = False) -> list[Write]:
    """Give source partitions other offsets."""
    if not unlike:
        require_alike(places, wanted)
    writes, seen = list[Write](), set[str]()
    for one in wanted:
        name = canonical(one.partition)
        if name in seen:
            raise ConfigurationError(f"The source partition {name} is named twice.")
        seen.add(name)
        keys = places.keys_of(one.partition)
        if len(keys) > 1 and one.offset is not None:
            raise ConfigurationError(
                f"The source partition {name} has offsets under {len(keys)} spellings of its key.",
                expected="one, as the connector's tasks write it",
                remedy="See them with 'eos offsets list -o wide', and reset the source partition first.",
            )
        value = None if one.offset is None else offset_value(one.offset)
        writes += [write for key in sorted(keys) for write in places.put(key, value)]
    return writes


def one_for_each(places: Places, where: Mapping[str, Any], offset: Mapping[str, Any] | None) -> list[Wanted]:
    """The same offset for each source partition that has one which the tasks read.

    :param offset: None to remove all there are, also those that the tasks do not read.
    """
    read = places.topics[0].name
    partitions = {
        canonical(record.key.partition): record.key.partition
        for record in places.live()
        if (offset is None or record.topic == read) and contains(record.key.partition, where)
    }
    if offset is not None and not partitions:
        raise ConfigurationError(
            f"{places.connector} has no offset of a source partition that this one is for"
            f"{f': none has {canonical(where)}' if where else ''}.",
            remedy=f"'eos offsets list {places.connector}' shows them. For one without an offset, name "
            "it with --partition.",
        )
    return [Wanted(partition, offset) for _, partition in sorted(partitions.items())]


def require_alike(places: Places, wanted: Iterable[Wanted]) -> None:
    """Check that new offsets have the form of those that the connector has now.

    A misspelt member, or a number that became a text, is an offset that tasks do not understand: they start from the
    beginning, or fail. Where the connector has no offset, there is nothing to compare with.
    """
    read = places.topics[0].name
    known = [r for r in places.live() if r.offset is not None]
    known = [r for r in known if r.topic == read] or known
    if not known:
        return
    partitions = {canonical(record.key.partition) for record in known}
    offsets = [record.offset or {} for record in known]
    types: dict[str, set[str]] = {}
    for name, value in (member for offset in offsets for member in offset.items()):
        types.setdefault(name, set()).add(_type_of(value))
    always = set.intersection(*map(set, offsets))
    for one in wanted:
        if problem := _unlike(one, partitions, types, always):
            raise RefusedError(
                f"{problem}, unlike the offsets that {places.connector} has now.",
                expected=f"for example {canonical(known[0].key.partition)}: {canonical(known[0].offset)}",
                remedy="Correct it. If this is what you want, add --unlike.",
            )


def _unlike(one: Wanted, partitions: set[str], types: Mapping[str, set[str]], always: set[str]) -> str:
    """How a new offset differs from the present ones; empty if it does not."""
    if one.offset is None:
        return ""
    if canonical(one.partition) not in partitions:
        return f"The source partition {canonical(one.partition)} has no offset"
    offset = canonical(one.offset)
    if more := sorted(one.offset.keys() - types.keys()):
        return f"The new offset {offset} has the member {more[0]!r}"
    if less := sorted(always - one.offset.keys()):
        return f"The new offset {offset} lacks the member {less[0]!r}"
    for name, value in one.offset.items():
        if _type_of(value) not in types[name]:
            return f"The member {name!r} of the new offset {offset} is {_type_of(value)}"
    return ""


def _type_of(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a fraction", str: "a text", type(None): "null"}
    return names.get(type(value), "no single value")


def require_same_origin(backup: Backup, kafka_cluster_id: str, group_id: str, topics: Sequence[OffsetsTopic]) -> None:
    """Go on only if a backup was taken from this very group and these very topics."""
    if (backup.cluster_id, backup.group_id) != (kafka_cluster_id, group_id):
        found = f"of group {backup.group_id} in the Kafka cluster {backup.cluster_id}"
        expected = f"group {group_id} in {kafka_cluster_id}"
    else:
        saved = {topic.name: topic.id for topic in backup.topics}
        other = [t for t in topics if t.name in saved and saved[t.name] != t.id]
        if not other:
            return
        found = f"of a topic {other[0].name} with the id {saved[other[0].name]}, which was deleted since"
        expected = f"the topic id {other[0].id}"
    raise RefusedError(
        f"The backup is {found}.",
        expected=expected,
        remedy="If these offsets are right here too, say so with --from-elsewhere.",
    )


def restore(places: Places, backup: Backup) -> list[Write]:
    """Bring a connector's offsets to what a backup has, and remove what it does not have."""
    connector = places.connector
    backup.require_read(connector)
    if backup.connectors is not None and connector not in backup.connectors:
        raise ConfigurationError(
            f"The backup is of {', '.join(backup.connectors)}, not of {connector}.",
            remedy=f"Take one with 'eos offsets backup {connector}', or one of all connectors.",
        )
    names = {topic.name for topic in places.topics}
    saved = {(r.topic, r.kafka_partition, r.key.raw): r for r in backup.records if r.key.connector == connector}
    if elsewhere := sorted({topic for topic, _, _ in saved} - names):
        raise ConfigurationError(
            f"The backup has offsets of {connector} in {', '.join(elsewhere)}, which is no offsets topic of it now.",
            expected=" or ".join(sorted(names)),
            remedy="Give the connector that topic again (offsets.storage.topic), or alter its offsets by a file.",
        )
    if missing := sorted(names - {topic.name for topic in backup.topics}):
        raise ConfigurationError(
            f"The backup was taken without {', '.join(missing)}, where {connector} has its offsets now: all of them "
            "would be removed.",
            expected="a backup that was taken since the connector has that topic, while its brokers answered",
            remedy=f"To let the connector start from the beginning: 'eos offsets reset {connector}'. To give it the "
            f"offsets of the backup: 'eos offsets restore {connector} --from {connector} …'.",
        )
    values = dict[tuple[str, bytes], bytes | None]()
    for record in sorted(saved.values(), key=lambda record: (record.timestamp_ms, record.position)):
        values[record.topic, record.key.raw] = record.value  # the newest, where a key stood in several partitions
    keys = {(record.topic, record.key.raw) for record in places.live()} | values.keys()
    by_name = {topic.name: topic for topic in places.topics}
    return [write for name, key in sorted(keys) for write in places.put_in(by_name[name], key, values.get((name, key)))]


def migrate(connector: str, now: Sequence[OffsetsTopic], to: OffsetsTopic) -> list[Write]:
    """Move the offsets that a connector's tasks read into one topic.

    The former place keeps what it has: the tasks read it until the connector has its new configuration, and go on there
    if it gets none. A later migration back replaces all of it.
    """
    wanted = _offsets_of(connector, now)
    target = Places(connector, [to])
    others = sorted({record.key.raw for record in target.live()} - wanted.keys())
    writes = [write for key, value in wanted.items() for write in target.put(key, value)]
    return writes + [write for key in others for write in target.put(key, None)]


def copy(source: str, now: Sequence[OffsetsTopic], places: Places) -> list[Write]:
    """Give one connector the offsets that the tasks of another one read.

    A key keeps the spelling of its source partition. Offsets of source partitions that the other one lacks stay.
    """
    renamed = {_renamed(raw, places.connector): value for raw, value in _offsets_of(source, now).items()}
    return [write for key, value in renamed.items() for write in places.put(key, value)]


def copy_saved(source: str, backup: Backup, places: Places) -> list[Write]:
    """The same from a backup, of any group and any Kafka cluster."""
    backup.require_read(source)
    own = {topic.name for topic in backup.topics if source in topic.own_of}
    global_ = {topic.name for topic in backup.topics if not topic.own_of}
    of_source = sorted((r for r in backup.records if r.key.connector == source), key=lambda record: record.key.raw)
    # Every record of a backup stands; where the own topic has none yet, the tasks' are those of the global one.
    read = [r for r in of_source if r.topic in own] or [r for r in of_source if r.topic in global_]
    if not read:
        known = sorted({record.key.connector for record in backup.records if record.key.connector})
        raise ConfigurationError(
            f"The backup has no offsets of {source}.", expected=f"one of {', '.join(known) or 'none at all'}"
        )
    found = {one.record.key.raw: one.record.value for one in combined(read, ())}
    return [write for raw, value in found.items() for write in places.put(_renamed(raw, places.connector), value)]


def _offsets_of(connector: str, topics: Sequence[OffsetsTopic]) -> dict[bytes, bytes | None]:
    """By key the offsets that a connector's tasks read.

    Where its own topic has none of them yet, the global one's: an operator has given it that topic, and its tasks
    would begin anew.
    """
    found = dict[bytes, bytes | None]()
    for topic in topics:
        found = _valid_in(topic, connector)
        if found:
            break
    return found


def _valid_in(topic: OffsetsTopic, connector: str) -> dict[bytes, bytes | None]:
    """By key the offsets of a connector in one topic that are not removed.

    Where a key stands in several partitions, tasks have written the one where it belongs last, if it is there.
    """
    newest = dict[bytes, OffsetRecord]()
    for record in topic.committed.get(connector, ()):
        key, last = record.key.raw, newest.get(record.key.raw)
        if last is None or _rank(record, topic) > _rank(last, topic):
            newest[key] = record
    return {key: record.value for key, record in newest.items() if not record.is_removed}


def _rank(record: OffsetRecord, topic: OffsetsTopic) -> tuple[bool, int, int]:
    return not has_strayed(record, topic), record.timestamp_ms, record.position


def _renamed(raw: bytes, connector: str) -> bytes:
    """The same key for another connector, its source partition byte for byte."""
    text = raw.decode()
    begin = len(text) - len(text.lstrip()) + 1  # behind the bracket
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    _, end = json.JSONDecoder().raw_decode(text, begin)
    return (text[:begin] + encode(connector).decode() + text[end:]).encode()
