"""Record batches of the message format 2 (KIP-98) in a fetched piece of log: their headers, and the markers.

Each header has the producer id, its epoch, and whether the batch is part of a transaction. A transaction's end is a
batch of its own, the marker. The records of other batches, compressed or not, are passed over.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafka.protocol.consumer.fetch import FetchRequest

#: The newest version that names topics; from 13 on they are asked for by topic id, which older brokers do not have.
_FETCH_BY_NAME = 12

#: Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer
#: id and epoch, first sequence, number of records (``DefaultRecordBatch``).
_HEADER = struct.Struct(">qiibIhiqqqhii")

#: What the length of a batch does not count: base offset and length themselves.
_BEFORE_LENGTH = 12

_MAGIC = 2
_TRANSACTIONAL, _CONTROL = 0x10, 0x20

#: A marker's key: its version and its type (``EndTransactionMarker``, ``ControlRecordType``).
_MARKER_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class OldFormatError(ValueError):
    """A batch is older than Kafka 0.11 (magic 0 or 1), or no batch.

    :ivar base_offset: where it would begin.
    """

    def __init__(self, base_offset: int, text: str) -> None:
        super().__init__(text)
        self.base_offset = base_offset


class RawBatch(NamedTuple):
    """One batch in a piece of log. Its records are the bytes from ``begin`` to ``end``, perhaps compressed.

    Timestamps are milliseconds since the epoch.
    """

    base_offset: int
    last_offset: int
    attributes: int
    first_ms: int
    last_ms: int
    producer_id: int
    producer_epoch: int
    records: int
    begin: int
    end: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker's, not one of records."""
        return bool(self.attributes & _CONTROL)


def raw_batches(data: bytes | memoryview) -> Iterator[RawBatch]:
    """The batches in a fetched piece of log; one that is cut off at its end is left out."""
    at = 0
    while at + _HEADER.size <= len(data):
        base, length, _, magic, _, attributes, last_delta, first_ms, last_ms, producer_id, epoch, _, count = (
            _HEADER.unpack_from(data, at)
        )
        if magic != _MAGIC or length < _HEADER.size - _BEFORE_LENGTH:
            raise OldFormatError(base, f"a batch of magic {magic} and {length} bytes at byte {at}")
        begin, at = at + _HEADER.size, at + _BEFORE_LENGTH + length
        if at > len(data):
            return
        last = base + last_delta
        yield RawBatch(base, last, attributes, first_ms, last_ms, producer_id, epoch, count, begin, at)


def committed_by(data: bytes | memoryview, batch: RawBatch) -> bool | None:
    """How a marker ended its transaction; None where compaction has taken the marker out of its batch.

    Compaction also gives batches another time (KIP-534), so a marker's key is not always at the same place.
    """
    if not batch.records:
        return None
    key = record_at(data, batch.begin)[2] or b""
    return {_ABORT: False, _COMMIT: True}.get(_MARKER_KEY.unpack_from(key)[1])


def record_at(data: bytes | memoryview, at: int) -> tuple[int, int, Any, Any, int, int]:
    """Differences of time and offset from its batch's, key, value, and where its headers begin and the record ends."""
    size, at = varint(data, at)
    end = at + size
    milliseconds, at = varint(data, at + 1)  # behind the record's attributes, which are not used
    delta, at = varint(data, at)
    key, at = sized(data, at)
    value, at = sized(data, at)
    if size < 0 or end > len(data) or at > end:
        raise ValueError(f"a record of {size} bytes at byte {at}")
    return milliseconds, delta, key, value, at, end


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends; zigzag, seven bits a byte."""
    number = data[at]
    at += 1
    if number >= 0x80:
        number &= 0x7F
        shift = 7
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    return number >> 1 ^ -(number & 1), at


def sized(data: bytes | memoryview, at: int) -> tuple[Any, int]:
    """Bytes behind their number, None for -1; and where they end."""
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def fetch_request(
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    partition_bytes: int,
    most_bytes: int,
    committed: bool = False,
    topic_id: uuid.UUID | None = None,
) -> Any:
    """A fetch that stands for itself: KIP-227's sessions are not used.

    :param positions: offset by partition.
    :param wait_ms: how long the broker waits for a record that is not there yet, milliseconds.
    :param committed: as a reader of committed records: up to the last stable offset, with the aborted transactions.
    """
    kind = FetchRequest.FetchTopic
    wanted = [
        kind.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_bytes,
        )
        for partition, offset in positions.items()
    ]
    by_id: dict[str, Any] = {} if topic_id is None else {"topic_id": topic_id}
    by_name = {"max_version": _FETCH_BY_NAME} if topic_id is None else {}
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=most_bytes,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=wanted, **by_id)],
        forgotten_topics_data=[],
        rack_id="",
        **by_name,
    )
