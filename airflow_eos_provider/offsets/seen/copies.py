"""How far a connector's own offsets topic and the global one are apart, key by key.

A task with an own topic writes each offset there in its transaction, and a copy of it to the global topic as soon as
the broker has that record: before the transaction is committed (``ConnectorOffsetBackingStore``, 4.3.1). A worker from
before KIP-618 does not know own topics: it reads and updates that copy, and the own topic falls behind.
The content of offsets is not compared; the time of their records shows which of two is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.topics.source_offsets import OffsetRecord
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets


@dataclass(frozen=True, slots=True)
class Copies:
    """A connector's own topic beside the global one, by numbers of source partitions."""

    connector: str
    own_topic: str  #: the name of its store
    read_own: int  #: with an offset in the own topic
    same: int  #: with the same offset in both
    behind: int  #: whose copy in the global topic is an older one, or is missing
    seconds_behind: float | None  #: by how much the oldest such copy is older; None if every one of them is missing
    missing: int  #: without a copy in the global topic, among those behind
    further: int  #: whose older copy has a greater number in it: the own offset was moved back, or was removed, since
    ahead: int  #: whose copy is of a transaction that is open or was aborted: the records before it may be nowhere
    left: int  #: whose offset in the global topic is newer: the connector ran without its own topic since
    #: Time of the newest record of it in the own topic, seconds since the epoch; None if there is none.
    newest_own: float | None
    newest_global: float | None  #: likewise in the global topic

    @property
    def is_left_behind(self) -> bool:
        """Whether tasks that read the own topic would deliver once more what was delivered without it."""
        return self.left > 0


def copies(offsets: GroupOffsets, connector: str) -> Copies | None:
    """How far a connector's own topic and the global one are apart; None if it has no own topic that is known.

    :param offsets: read so that the own topics came after the global one, or a running task would seem to be behind.
    """
    name = offsets.own_topic_of.get(connector, "")
    if not name or connector in offsets.not_read:
        return None
    topic = offsets.own_topics.get(name)  # its first task makes it
    own = _newest(topic.committed.get(connector, ()) if topic else ())
    copied = _newest(offsets.global_topic.committed.get(connector, ()))
    pending = {(record.key.raw, record.value) for record in _not_committed(topic, connector)}
    newest_own = max((record.timestamp_ms for record in own.values()), default=None)
    same = missing = further = ahead = left = 0
    lags: list[int] = []
    for raw in own.keys() | copied.keys():
        mine, other = own.get(raw), copied.get(raw)
        if other is not None and not (mine and mine.value == other.value) and (raw, other.value) in pending:
            ahead += 1
        elif mine is None:
            left += _is_left(other, newest_own)
        elif other is None:
            missing += not mine.is_removed
        elif mine.value == other.value:
            same += not mine.is_removed
        elif other.timestamp_ms > mine.timestamp_ms:
            left += 1
        elif other.is_removed:
            missing += 1
        else:
            further += _is_further(other, mine)
            lags.append(mine.timestamp_ms - other.timestamp_ms)
    return Copies(
        connector,
        name,
        sum(not record.is_removed for record in own.values()),
        same,
        len(lags) + missing,
        max(lags) / 1000 if lags else None,
        missing,
        further,
        ahead,
        left,
        _seconds(newest_own),
        _seconds(max((record.timestamp_ms for record in copied.values()), default=None)),
    )


def all_copies(offsets: GroupOffsets) -> list[Copies]:
    """Of every connector with an own topic, by name."""
    found = (copies(offsets, connector) for connector in offsets.known())
    return [one for one in found if one is not None]


def left_behind_lines(found: Iterable[Copies]) -> list[str]:
    """A warning of each own topic that is left behind."""
    return [
        f"{one.connector}: its own offsets topic {one.own_topic} is older than the global one in "
        f"{counted(one.left, 'source partition')}: an enabled worker would deliver newer records again. "
        f"Before newer workers start: 'eos offsets drop-own {one.connector}'."
        for one in found
    ]


def _not_committed(topic: OffsetsTopic | None, connector: str) -> Iterator[OffsetRecord]:
    """What stands in an own topic of transactions that are not committed."""
    if topic is not None:
        yield from topic.waiting.get(connector, ())
        yield from topic.aborted.get(connector, ())


def _newest(records: Iterable[OffsetRecord]) -> dict[bytes, OffsetRecord]:
    """By key the newest record, removals included, of those in several partitions."""
    newest: dict[bytes, OffsetRecord] = {}
    for record in records:
        before = newest.get(record.key.raw)
        if before is None or (record.timestamp_ms, record.position) > (before.timestamp_ms, before.position):
            newest[record.key.raw] = record
    return newest


def _is_left(record: OffsetRecord | None, newest_own: int | None) -> bool:
    """Whether an offset that only the global topic has came after the last one in the own topic.

    What is older is of a source partition that the connector had before it had an own topic.
    """
    return record is not None and not record.is_removed and (newest_own is None or record.timestamp_ms > newest_own)


def _is_further(copy: OffsetRecord, mine: OffsetRecord) -> bool:
    """Whether a copy that is older than the own offset is further on in its source, as far as numbers show that."""
    if mine.is_removed:
        return True
    before, after = _numbers(mine.offset), _numbers(copy.offset)
    return any(after[name] > before[name] for name in before.keys() & after.keys())


def _numbers(offset: Mapping[str, Any] | None) -> dict[str, float]:
    return {
        name: value
        for name, value in (offset or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
