"""Record batches of the message format 2 (KIP-98), decoded as they come from a fetch.

Codecs are zlib's and pyarrow's. As with librdkafka's default, checksums are not compared: the brokers have done that.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.read.fetched import LogRecord

#: Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer
#: id and epoch, first sequence, number of records (``DefaultRecordBatch``).
_HEADER = struct.Struct(">qiibIhiqqqhii")

#: What the length of a batch does not count: base offset and length themselves.
_BEFORE_LENGTH = 12

_MAGIC = 2
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20

#: A marker's key: its version and its type (``ControlRecordType``).
_MARKER_KEY = struct.Struct(">hh")
_ABORT = 0

#: As ``SnappyOutputStream`` of xerial, which Java's clients use; librdkafka's blocks have no such header.
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16


class Decoder:
    """Decodes what one partition's fetches return.

    :param committed: leave out the records of aborted transactions, as far as :meth:`decode` is told them.
    :param headers: with the records' headers.
    """

    def __init__(self, topic: str, partition: int, *, committed: bool, headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._committed = committed
        self._headers = headers

    def decode(self, data: bytes, position: int, aborted: Sequence[tuple[int, int]]) -> tuple[list[LogRecord], int]:
        """The records of whole batches from a position on, and the position behind these batches.

        :param aborted: producer id and first offset of each aborted transaction that has records in them.
        :raises EosError: they cannot be decoded.
        """
        records: list[LogRecord] = []
        still_to_begin = sorted(aborted, key=lambda one: one[1], reverse=True)
        given_up: set[int] = set()
        at = 0
        while at + _HEADER.size <= len(data):
            base, length, _, magic, _, attributes, last_delta, first_ms, last_ms, producer, _, _, count = (
                _HEADER.unpack_from(data, at)
            )
            if magic != _MAGIC or length < _HEADER.size - _BEFORE_LENGTH:
                raise self._undecodable(base, f"its format is {magic}, and it has {length} bytes")
            begin, end = at + _HEADER.size, at + _BEFORE_LENGTH + length
            if end > len(data):
                break  # its rest comes with the next fetch
            last = base + last_delta
            # As Java's ``CompletedFetch`` does it: an abort's marker ends what its first offset began.
            while still_to_begin and still_to_begin[-1][1] <= last:
                given_up.add(still_to_begin.pop()[0])
            is_marker = bool(attributes & _CONTROL)
            is_aborted = self._committed and attributes & _TRANSACTIONAL and producer in given_up
            if count and (is_marker or (last >= position and not is_aborted)):  # compaction leaves empty batches
                fixed_ms = last_ms if attributes & _APPEND_TIME else None
                try:
                    unpacked = _UNPACKED[attributes & _CODEC](data[begin:end])
                    found = list(self._records(unpacked, count, base, first_ms, fixed_ms))
                    if not is_marker:
                        records += (record for record in found if record.offset >= position)
                    elif _MARKER_KEY.unpack_from(found[0].key or b"")[1] == _ABORT:
                        given_up.discard(producer)
                except (LookupError, ValueError, OSError, struct.error, zlib.error) as error:
                    raise self._undecodable(base, f"{type(error).__name__}: {error}") from None
            position = max(position, last + 1)
            at = end
        return records, position

    def _records(self, data: bytes, count: int, base: int, first_ms: int, fixed_ms: int | None) -> Iterator[LogRecord]:
        at = 0
        for _ in range(count):
            size, at = _varint(data, at)
            end = at + size
            milliseconds, at = _varint(data, at + 1)  # behind the record's attributes, which are not used
            delta, at = _varint(data, at)
            key, at = _sized(data, at)
            value, at = _sized(data, at)
            headers = self._headers_at(data, at) if self._headers else None
            if size < 0 or end > len(data) or at > end:
                raise ValueError(f"a record of {size} bytes at byte {at}")
            timestamp_ms = first_ms + milliseconds if fixed_ms is None else fixed_ms
            yield LogRecord(self._topic, self._partition, base + delta, timestamp_ms, key, value, headers)
            at = end

    @staticmethod
    def _headers_at(data: bytes, at: int) -> list[tuple[str, str | bytes | None]] | None:
        headers: list[tuple[str, str | bytes | None]] = []
        count, at = _varint(data, at)
        for _ in range(count):
            name, at = _sized(data, at)
            value, at = _sized(data, at)
            headers.append(((name or b"").decode(), value))
        return headers or None

    def _undecodable(self, offset: int, why: str) -> EosError:
        return EosError(
            f"The batch at offset {offset} of topic {self._topic}, partition {self._partition}, cannot be decoded: "
            f"{why}.",
            expected="a record batch of Kafka 0.11 or newer",
        )


def _varint(data: bytes, at: int) -> tuple[int, int]:
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


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _gzip(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=31)


def _streamed(codec: str) -> Callable[[bytes], bytes]:
    def unpack(data: bytes) -> bytes:
        import pyarrow as pa

        return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())

    return unpack


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_SNAPPY_MAGIC):
        return _snappy_block(data)
    blocks, at = [], _SNAPPY_HEADER_BYTES
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        blocks.append(_snappy_block(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(data: bytes) -> bytes:
    """It begins with its length, as a varint without a sign."""
    import pyarrow as pa

    codec: Any = pa.Codec("snappy")
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return bytes(codec.decompress(data, size, asbytes=True))


#: By the codec's number in a batch's attributes; see ``write.compression``.
_UNPACKED: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: _gzip,
    2: _snappy,
    3: _streamed("lz4"),
    4: _streamed("zstd"),
}
