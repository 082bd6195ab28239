"""Kafka's record batches, magic 2 (KIP-98): the header, its seal, and batches of few records.

Batches of many records are made by :mod:`~airflow_eos_provider.kafka.write.batch_encoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.write.compression import Compression
from airflow_eos_provider.kafka.write.crc32c import crc32c

Headers = Sequence[tuple[str, str | bytes | None]]

#: Key, value, headers and timestamp (ms since the epoch) of one record.
Record = tuple[bytes | None, bytes | None, Headers | None, int]

#: The topic setting ``max.message.bytes`` unless someone sets it: of a whole batch, compressed.
MAX_MESSAGE_BYTES = 1_048_588

HEADER_BYTES = 61

#: Base offset, length of the rest, leader epoch, magic, checksum; then, from where on the checksum is: attributes, last
#: offset delta, first and largest timestamp, producer id, epoch, first sequence, count (``DefaultRecordBatch``).
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_AT, _CHECKED_FROM, _PRODUCER_AT = 17, 21, 43
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")

_BEFORE_LENGTH_ENDS = 12
_NO_LEADER_EPOCH = -1
_MAGIC = 2
_TRANSACTIONAL = 0x10


@dataclass(slots=True)
class EncodedBatch:
    """A record batch for one partition.

    :param data: the whole batch; :func:`seal` fills in what only the producer knows.
    """

    topic: str
    partition: int
    count: int
    data: bytearray


def seal(batch: EncodedBatch, producer_id: int, epoch: int, first_sequence: int) -> None:
    """Write the producer's part of the header, and the checksum, in place."""
    _PRODUCER.pack_into(batch.data, _PRODUCER_AT, producer_id, epoch, first_sequence)
    _CRC.pack_into(batch.data, _CRC_AT, crc32c(memoryview(batch.data)[_CHECKED_FROM:]))


def batch_of(
    topic: str,
    partition: int,
    count: int,
    data: bytearray,
    timestamps: tuple[int, int],
    compression: Compression,
    largest: int = MAX_MESSAGE_BYTES,
    *,
    is_transactional: bool = True,
) -> EncodedBatch:
    """A batch of records that are encoded already.

    :param data: room for the header, then the records. They stay uncompressed where the codec saves nothing.
    :param largest: the topic's ``max.message.bytes``.
    """
    attributes = _TRANSACTIONAL if is_transactional else 0
    if compression.code:
        packed = compression.compressed(memoryview(data)[HEADER_BYTES:])
        if len(packed) < len(data) - HEADER_BYTES:
            data = bytearray(HEADER_BYTES)
            data += packed
            attributes |= compression.code
    if len(data) > largest:
        raise ConfigurationError(
            f"A batch for topic {topic} takes {len(data)} bytes; records in it: {count}.",
            expected=f"at most {largest} bytes, the topic's max.message.bytes",
            remedy="Make the records smaller, or raise the topic's max.message.bytes.",
        )
    length = len(data) - _BEFORE_LENGTH_ENDS
    _HEADER.pack_into(
        data, 0, 0, length, _NO_LEADER_EPOCH, _MAGIC, 0, attributes, count - 1, *timestamps, 0, 0, 0, count
    )
    return EncodedBatch(topic, partition, count, data)


def encode_records(
    topic: str,
    partition: int,
    records: Sequence[Record],
    compression: str = "none",
    largest: int = MAX_MESSAGE_BYTES,
    *,
    is_transactional: bool = True,
) -> EncodedBatch:
    """One batch of a few records, such as ledger records. Needs no numpy and no pyarrow.

    :param compression: as ``compression.type``.
    :param largest: the topic's ``max.message.bytes``.
    """
    data = bytearray(HEADER_BYTES)
    stamps = [timestamp_ms for *_, timestamp_ms in records]
    for delta, (key, value, headers, timestamp_ms) in enumerate(records):
        parts = [b"\0", varint(timestamp_ms - stamps[0]), varint(delta), _sized(key), _sized(value)]
        body = b"".join([*parts, varint(len(headers or ())), header_bytes(headers)])
        data += varint(len(body)) + body
    span = (stamps[0], max(stamps))
    codec = Compression(compression)
    return batch_of(topic, partition, len(records), data, span, codec, largest, is_transactional=is_transactional)


def header_bytes(headers: Headers | None) -> bytes:
    """Headers as in a record, without their number."""
    return b"".join(
        _sized(name.encode()) + _sized(content.encode() if isinstance(content, str) else content)
        for name, content in headers or ()
    )


def varint(number: int) -> bytes:
    """A signed number in the variable-length form of records (``ByteUtils.writeVarlong``)."""
    left = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content
