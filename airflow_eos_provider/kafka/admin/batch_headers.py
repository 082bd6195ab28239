"""The batches of a log as the brokers keep them, fetched for their headers.

Each header has the producer id, its epoch, and whether the batch is part of a transaction (KIP-98); a transaction's end
is a batch of its own, the marker. The records in between, compressed or not, are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import kafka.errors
from kafka import TopicPartition
from kafka.protocol.consumer.fetch import FetchRequest

from airflow_eos_provider.kafka.admin.partition_writers import Batch

#: The newest version that names topics; from 13 on they are asked for by topic id, which older brokers do not have.
_FETCH_BY_NAME = 12

#: How much of one partition a fetch returns, bytes; a larger first batch comes whole.
_FETCH_BYTES = 8 << 20

#: How long the broker waits for records that are not there yet, milliseconds; there are always some.
_FETCH_WAIT_MS = 500

#: Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer
#: id and epoch, first sequence, number of records (``DefaultRecordBatch``).
_HEADER = struct.Struct(">qiibIhiqqqhii")

#: What the length of a batch does not count: base offset and length themselves.
_BEFORE_LENGTH = 12

_TRANSACTIONAL, _CONTROL = 0x10, 0x20

#: In a control batch, behind its header: the record's length, attributes, two deltas and the length of the key as
#: varints of one byte each, then the key: version and type (``EndTransactionMarker``, ``ControlRecordType``).
_MARKER_KEY = struct.Struct(">hh")
_MARKER_KEY_AT = _HEADER.size + 5
_ABORT, _COMMIT = 0, 1


def headers(data: bytes | memoryview) -> Iterator[Batch]:
    """The headers of the batches in a fetched piece of log; one that is cut off at its end is left out.

    :raises ValueError: a batch is older than Kafka 0.11 (magic 0 or 1), or no batch.
    """
    position = 0
    while position + _HEADER.size <= len(data):
        base, length, _, magic, _, attributes, last_delta, _, _, producer_id, epoch, _, _ = _HEADER.unpack_from(
            data, position
        )
        if magic != 2 or length < _HEADER.size - _BEFORE_LENGTH:
            raise ValueError(f"a batch of magic {magic} and {length} bytes at byte {position}")
        end = position + _BEFORE_LENGTH + length
        if end > len(data):
            return
        committed = None
        if attributes & _CONTROL:
            _, kind = _MARKER_KEY.unpack_from(data, position + _MARKER_KEY_AT)
            committed = {_ABORT: False, _COMMIT: True}.get(kind)
        yield Batch(base, base + last_delta, producer_id, epoch, bool(attributes & _TRANSACTIONAL), committed)
        position = end


async def fetch(admin: Any, topic: str, positions: dict[int, int]) -> dict[int, bytes]:
    """A piece of each partition's log from a position on.

    :param admin: kafka-python's admin client.
    :param positions: offset by partition.
    :returns: bytes by partition, whole batches first and perhaps a part of one at the end.
    :raises kafka.errors.KafkaError: a leader is away or answers with an error.
    """
    leaders = await admin._async_get_leader_for_partitions([TopicPartition(topic, p) for p in positions])
    pending = []
    for leader, led in leaders.items():
        if leader < 0:
            raise kafka.errors.LeaderNotAvailableError(f"{topic}-{led[0].partition} has no leader")
        pending.append(admin._manager.send(_request(topic, {p.partition: positions[p.partition] for p in led}), leader))
    found = {}
    for future in pending:
        for answer in [p for t in (await future).responses for p in t.partitions]:
            if answer.error_code:
                raise kafka.errors.for_code(answer.error_code)(f"{topic}-{answer.partition_index}")
            found[answer.partition_index] = bytes(answer.records or b"")
    return found


def _request(topic: str, positions: dict[int, int]) -> Any:
    wanted = [
        FetchRequest.FetchTopic.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=_FETCH_BYTES,
        )
        for partition, offset in positions.items()
    ]
    return FetchRequest(
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=4 * _FETCH_BYTES,
        isolation_level=0,  # what is open is to be seen
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=wanted)],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_FETCH_BY_NAME,
    )
