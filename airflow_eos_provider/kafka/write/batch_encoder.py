"""Columns of records to Kafka's record batches, with no work in Python for each record. Needs numpy and pyarrow.

Some thousand rows at a time are sorted by topic and partition, and laid as records behind one another
(:mod:`~airflow_eos_provider.kafka.write.pieces`). What is of one partition is added to its open batch.

A row goes to the partition that it names. Without one, its key decides as in Java's producer (murmur2). Rows without a
key fill one partition with ``batch_bytes``, then the next. The first one is random; Java's producer chooses each at
random (KIP-794).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from airflow_eos_provider.kafka.write.compression import Compression
from airflow_eos_provider.kafka.write.partitioner import missing_partition, partitions_of
from airflow_eos_provider.kafka.write.pieces import Layout, Pieces, varint_sizes, varints
from airflow_eos_provider.kafka.write.record_batches import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    EncodedBatch,
    batch_of,
    header_bytes,
    varint,
)
from airflow_eos_provider.kafka.write.record_rows import RecordRows

#: Rows, and bytes of them, that are laid at once: few enough that their memory stays in the processor's cache.
_ROWS = 10_000
_BYTES = 8 << 20

#: Bytes of all open batches; with more, all are sent as they are.
_OPEN_BYTES = 64 << 20

#: Bytes of a record's offset delta, of its timestamp's delta where rows have timestamps, and of its length, at most.
_DELTA_BYTES, _STAMP_BYTES, _LENGTH_BYTES = 4, 10, 5


@dataclass(slots=True)
class _Open:
    """A batch that takes more records.

    :param size: bytes that it has at most.
    """

    topic: str
    partition: int
    first_ms: int
    last_ms: int
    count: int = 0
    size: int = HEADER_BYTES
    records: list[bytes | memoryview] = field(default_factory=list)


class _Run(NamedTuple):
    """Rows of one part that go into one batch: those from ``begin`` to before ``end``, in the order of partitions.

    :param delta: offset delta of the first one.
    """

    batch: _Open
    begin: int
    end: int
    delta: int
    fills: bool


class BatchEncoder:
    """Makes batches of the rows of one transaction.

    :param compression: as ``compression.type``.
    :param level: of the codec; None for its default.
    :param batch_bytes: a batch has about so many bytes before compression; a larger row has a batch of its own.
    :param largest: a topic's ``max.message.bytes``, which no batch exceeds; None for Kafka's default.
    """

    def __init__(
        self,
        compression: str = "none",
        level: int | None = None,
        batch_bytes: int = 1_000_000,
        largest: Callable[[str], int] | None = None,
    ) -> None:
        self._compression = Compression(compression, level)
        self._batch_bytes = batch_bytes
        self._largest = largest or (lambda topic: MAX_MESSAGE_BYTES)
        self._open: dict[tuple[str, int], _Open] = {}
        self._keyless_bytes: dict[str, int] = {}
        self._has_timestamps = False

    def encode(self, rows: RecordRows, partitions: Callable[[str], int], now_ms: int) -> Iterator[EncodedBatch]:
        """Add rows.

        :param now_ms: the timestamp of rows that name none, ms since the epoch.
        :returns: the batches that are full, those of each partition in their order. Take them all.
        """
        for part in rows.parts(_ROWS, _BYTES):
            yield from self._add(part, [partitions(topic) for topic in part.topics], now_ms)
            if sum(batch.size for batch in self._open.values()) > _OPEN_BYTES:
                yield from self.flush()

    def flush(self) -> Iterator[EncodedBatch]:
        """The batches that are not full."""
        for batch in self._open.values():
            yield self._closed(batch)
        self._open.clear()

    def _closed(self, batch: _Open) -> EncodedBatch:
        stamps = (batch.first_ms, batch.last_ms)
        largest = self._largest(batch.topic)
        data = bytearray().join([bytes(HEADER_BYTES), *batch.records])
        return batch_of(batch.topic, batch.partition, batch.count, data, stamps, self._compression, largest)

    def _add(self, rows: RecordRows, counts: list[int], now_ms: int) -> Iterator[EncodedBatch]:
        import numpy as np

        self._has_timestamps |= rows.timestamps is not None
        places = self._places(rows, counts)
        order = np.argsort(places, kind="stable")
        stamps = None
        if self._has_timestamps:
            stamps = np.full(len(rows), now_ms) if rows.timestamps is None else rows.timestamps[order]
            stamps[stamps == 0] = now_ms
        key_length, pieces, sizes, tail = _contents(rows, order)
        around = 1 + _DELTA_BYTES + (1 if stamps is None else _STAMP_BYTES)
        ends = np.cumsum(np.broadcast_to(sizes + varint_sizes(sizes + around) + around, len(rows)))
        runs = list(self._runs(rows.topics, counts, np.bincount(places), ends, stamps, now_ms))
        lengths = [run.end - run.begin for run in runs]
        deltas = np.arange(len(rows)) + np.repeat([run.delta - run.begin for run in runs], lengths)
        pieces.insert(0, varints(deltas, behind=key_length))
        sizes = sizes + 1 + varint_sizes(deltas)
        if stamps is None:
            pieces.insert(0, varints(sizes + 1, tail, b"\0\0"))
        else:
            from_first = stamps - np.repeat([run.batch.first_ms for run in runs], lengths)
            pieces[:0] = [varints(sizes + varint_sizes(from_first), tail, b"\0"), varints(from_first)]
        layout = Layout(pieces, len(rows))
        for run in runs:
            if run.end > run.begin:
                *_, records = layout.laid(run.begin, run.end).buffers()
                run.batch.records += (memoryview(records)[len(tail) :], tail)
            if run.fills:
                yield self._closed(run.batch)

    def _places(self, rows: RecordRows, counts: list[int]) -> Any:
        """By row, the number of its partition among those of all topics."""
        import numpy as np

        firsts, count_of, first_of = list(accumulate(counts, initial=0)), np.array(counts), np.int64(0)
        if rows.topic_of is not None:
            count_of, first_of = count_of[rows.topic_of], np.array(firsts)[rows.topic_of]
        found = partitions_of(rows.keys, count_of)
        keyless = rows.keys.lengths < 0
        if rows.partitions is not None:
            named = rows.partitions >= 0
            _require_partitions(rows, counts)
            found = np.where(named, rows.partitions, found)
            keyless &= ~named
        if keyless.any():
            for (topic, those), count in zip(rows.by_topic(), counts, strict=True):
                some = np.arange(len(rows))[those]
                some = some[keyless[some]]
                found[some] = self._next_partitions(topic, rows.sizes[some], count)
        return (found + first_of).astype(np.uint16 if firsts[-1] <= 1 << 16 else np.int64)

    def _next_partitions(self, topic: str, sizes: Any, count: int) -> Any:
        """The partitions of rows without a key."""
        import numpy as np

        before = self._keyless_bytes.setdefault(topic, random.randrange(count) * self._batch_bytes)
        ends = before + np.cumsum(sizes)
        self._keyless_bytes[topic] = int(ends[-1]) if len(sizes) else before
        return (ends - sizes) // self._batch_bytes % count

    def _runs(
        self, topics: tuple[str, ...], counts: list[int], rows_of: Any, ends: Any, stamps: Any, now_ms: int
    ) -> Iterator[_Run]:
        """Divide rows among batches.

        :param ends: by row, where it ends in the order of places, bytes at most.
        """
        firsts = list(accumulate(counts, initial=0))
        begin = 0
        for place in rows_of.nonzero()[0].tolist():
            topic = topics[bisect_right(firsts, place) - 1]
            name = (topic, place - firsts[topics.index(topic)])
            most = min(self._batch_bytes, self._largest(topic))
            last = begin + int(rows_of[place])
            while begin < last:
                stamp = now_ms if stamps is None else int(stamps[begin])
                batch = self._open.setdefault(name, _Open(*name, stamp, stamp))
                before = int(ends[begin - 1]) if begin else 0
                room = int(ends.searchsorted(before + most - batch.size, "right"))
                end = min(last, max(begin if batch.count else begin + 1, room))
                if end > begin and stamps is not None:
                    batch.last_ms = max(batch.last_ms, int(stamps[begin:end].max()))
                fills = end < last
                yield _Run(batch, begin, end, batch.count, fills)
                batch.count += end - begin
                batch.size += int(ends[end - 1]) - before if end > begin else 0
                begin = end
                if fills:
                    del self._open[name]


def _require_partitions(rows: RecordRows, counts: list[int]) -> None:
    for (topic, those), count in zip(rows.by_topic(), counts, strict=True):
        named = rows.partitions[those]
        if len(named) and named.max() >= count:
            raise missing_partition(topic, named.max(), count)


def _contents(rows: RecordRows, order: Any) -> tuple[bytes, list[Pieces], Any, bytes]:
    """Of records in the order of partitions: the length of all keys (empty if they have several), the pieces behind it,
    their bytes, and what ends every record; it is written in front of the next one."""
    import numpy as np

    pieces: list[Pieces] = []
    sizes: Any = 0
    for column in (rows.keys, rows.values):
        lengths = column.lengths[order] if np.ptp(column.lengths) else column.lengths[:1]
        pieces.append(varints(lengths))
        sizes = sizes + varint_sizes(lengths) + lengths.clip(0)
        if len(column.data):
            pieces.append((column.array(), order))
    key_length = b""
    if np.ndim(pieces[0][1]) == 0:
        (array, place), *pieces = pieces
        key_length = array[place].as_py()
    if rows.headers is None:
        tail = varint(len(rows.more_headers)) + header_bytes(rows.more_headers)
        return key_length, pieces, sizes + len(tail), tail
    numbers = rows.header_counts[order]
    pieces += [varints(numbers), (rows.headers.array(), order)]
    return key_length, pieces, sizes + varint_sizes(numbers) + rows.headers.lengths[order], b""
