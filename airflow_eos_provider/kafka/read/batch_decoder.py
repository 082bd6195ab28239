"""Record batches of the message format 2 (KIP-98), decoded as they come from a fetch.

Codecs are zlib's and pyarrow's. As with librdkafka's default, checksums are not compared: the brokers have done that.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.batch_headers import (
    OldFormatError,
    RawBatch,
    committed_by,
    raw_batches,
    record_at,
    sized,
    varint,
)
from airflow_eos_provider.kafka.admin.partition_writers import Batch
from airflow_eos_provider.kafka.read.fetched import FetchOptions, LogRecord

_CODEC, _APPEND_TIME = 0x07, 0x08

#: As ``SnappyOutputStream`` of xerial, which Java's clients use; librdkafka's blocks have no such header.
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16


class Decoder:
    """Decodes what one partition's fetches return."""

    def __init__(self, topic: str, partition: int, options: FetchOptions) -> None:
        self._topic = topic
        self._partition = partition
        self._committed = options.isolation == "read_committed"
        self._headers = options.headers
        self._only_batches = options.batches

    def decode(self, data: bytes, position: int, aborted: Sequence[tuple[int, int]]) -> tuple[list[Any], int]:
        """The records of whole batches from a position on, and the position behind these batches.

        :param aborted: producer id and first offset of each aborted transaction that has records in them; these are
            left out of a read of committed records.
        """
        records: list[Any] = []
        still_to_begin = sorted(aborted, key=lambda one: one[1], reverse=True)
        given_up: set[int] = set()
        base = position
        try:
            for batch in raw_batches(data):
                base = batch.base_offset
                if self._only_batches:
                    if batch.last_offset >= position:  # the first may begin before what was asked for
                        records += self._batch(data, batch)
                        position = batch.last_offset + 1
                    continue
                # As Java's ``CompletedFetch`` does it: an abort's marker ends what its first offset began.
                while still_to_begin and still_to_begin[-1][1] <= batch.last_offset:
                    given_up.add(still_to_begin.pop()[0])
                if batch.is_control:
                    if committed_by(data, batch) is False:
                        given_up.discard(batch.producer_id)
                elif batch.last_offset >= position and not self._is_aborted(batch, given_up):
                    records += (record for record in self._records(data, batch) if record.offset >= position)
                position = max(position, batch.last_offset + 1)
        except OldFormatError as error:
            raise self._undecodable(error.base_offset, str(error)) from None
        except (LookupError, ValueError, OSError, struct.error, zlib.error) as error:
            raise self._undecodable(base, f"{type(error).__name__}: {error}") from None
        return records, position

    def _is_aborted(self, batch: RawBatch, given_up: Collection[int]) -> bool:
        return self._committed and batch.is_transactional and batch.producer_id in given_up

    def _batch(self, data: bytes, batch: RawBatch) -> Iterator[Batch]:
        """A batch's header; none of a batch whose marker compaction has taken, which tells nothing."""
        committed = committed_by(data, batch) if batch.is_control else None
        if committed is not None or not batch.is_control:
            yield Batch(
                *batch[:2],
                batch.producer_id,
                batch.producer_epoch,
                batch.is_transactional,
                committed,
                self._partition,
            )

    def _records(self, data: bytes, batch: RawBatch) -> Iterator[LogRecord]:
        if not batch.records:
            return  # compaction has taken them
        unpacked = _UNPACKED[batch.attributes & _CODEC](data[batch.begin : batch.end])
        fixed_ms = batch.last_ms if batch.attributes & _APPEND_TIME else None
        at = 0
        for _ in range(batch.records):
            milliseconds, delta, key, value, headers_at, at = record_at(unpacked, at)
            headers = self._headers_at(unpacked, headers_at, at) if self._headers else None
            timestamp_ms = batch.first_ms + milliseconds if fixed_ms is None else fixed_ms
            yield LogRecord(self._topic, self._partition, batch.base_offset + delta, timestamp_ms, key, value, headers)

    @staticmethod
    def _headers_at(data: bytes, at: int, end: int) -> list[tuple[str, str | bytes | None]] | None:
        headers: list[tuple[str, str | bytes | None]] = []
        count, at = varint(data, at)
        for _ in range(count):
            name, at = sized(data, at)
            value, at = sized(data, at)
            headers.append(((name or b"").decode(), value))
        if at > end:
            raise ValueError(f"headers that end at byte {at} of a record that ends at {end}")
        return headers or None

    def _undecodable(self, offset: int, why: str) -> EosError:
        return EosError(
            f"The batch at offset {offset} of topic {self._topic}, partition {self._partition}, cannot be decoded: "
            f"{why}.",
            expected="a record batch of Kafka 0.11 or newer",
        )


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
