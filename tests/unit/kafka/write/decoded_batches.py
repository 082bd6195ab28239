"""Reads record batches back, by Kafka's description of the format alone; shares nothing with what writes them."""

from __future__ import annotations

import gzip
import struct
from typing import Any, NamedTuple

import pyarrow as pa


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


class Batch(NamedTuple):
    """A batch's header and records; ``crc_of`` is what the checksum must be of."""

    attributes: int
    producer_id: int
    epoch: int
    sequence: int
    last_ms: int
    crc: int
    crc_of: bytes
    records: list[Record]


def decoded(data: bytes) -> Batch:
    """
    :raises AssertionError: the batch contradicts itself.
    """
    base, length, leader_epoch, magic, crc = struct.unpack_from(">qiibI", data)
    attributes, last_delta, first_ms, last_ms, producer_id, epoch, sequence, count = struct.unpack_from(
        ">hiqqqhii", data, 21
    )
    assert (base, length, leader_epoch, magic) == (0, len(data) - 12, -1, 2)
    assert last_delta == count - 1
    reader = _Reader(_unpacked(bytes(data[61:]), attributes & 7))
    records = [reader.record(delta, first_ms) for delta in range(count)]
    assert reader.at == len(reader.data)
    assert records[0].timestamp_ms == first_ms
    assert max(record.timestamp_ms for record in records) == last_ms
    return Batch(attributes, producer_id, epoch, sequence, last_ms, crc, bytes(data[21:]), records)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        self.at += max(0, size)
        return None if size < 0 else self.data[self.at - size : self.at]

    def record(self, delta: int, first_ms: int) -> Record:
        size = self.varint()
        end = self.at + size
        assert self.data[self.at] == 0
        self.at += 1
        timestamp_ms = first_ms + self.varint()
        assert self.varint() == delta
        key, value = self.sized(), self.sized()
        headers = []
        for _ in range(self.varint()):
            name = self.sized()
            assert name is not None
            headers.append((name.decode(), self.sized()))
        assert self.at == end
        return Record(key, value, headers, timestamp_ms)


def _unpacked(data: bytes, codec: int) -> bytes:
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return b"".join(_snappy(data))
    if codec == 3:
        return b"".join(_lz4(data))
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read() if codec == 4 else data  # type: ignore[no-any-return]


def _snappy(data: bytes) -> Any:
    assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        packed = data[at + 4 : at + 4 + size]
        length = shift = 0
        for byte in packed:  # a block begins with its length
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield pa.Codec("snappy").decompress(packed, length, asbytes=True)
        at += 4 + size


def _lz4(data: bytes) -> Any:
    """Each block by itself, as Kafka's reader does it; and all of them by the library's reader of frames."""
    assert data[:4] == b"\x04\x22\x4d\x18"
    assert data[4] == 0x60, "version 1, independent blocks, no checksums and no size"
    whole = pa.CompressedInputStream(pa.BufferReader(data), "lz4").read()
    most = 1 << (8 + 2 * (data[5] >> 4))
    at, done = 7, 0
    while size := struct.unpack_from("<I", data, at)[0]:
        block = data[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        length = min(most, len(whole) - done)
        yield block if size >> 31 else pa.Codec("lz4_raw").decompress(block, length, asbytes=True)
        at, done = at + 4 + len(block), done + length
    assert (at + 4, done) == (len(data), len(whole))
