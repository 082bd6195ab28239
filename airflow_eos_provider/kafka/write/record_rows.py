"""The rows of an Arrow batch as columns of records, for the digest and the encoder.

Nothing is made of each row. Needs numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn
from airflow_eos_provider.kafka.write.pieces import Layout, Pieces, varints
from airflow_eos_provider.kafka.write.record_batches import Headers, header_bytes

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_PARTITIONS = 1 << 31


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Rows as records.

    :param topic_of: by row, the place in ``topics``; None where all have the first one.
    :param partitions: by row, -1 where the partition is left to the key; None where it is in each row.
    :param timestamps: by row, ms since the epoch, 0 for now; None for now in each row.
    :param headers: by row, their bytes as in a record, without their number; None where all rows have ``more_headers``.
    :param more_headers: that all rows have, behind their own; they are in ``headers`` too.
    """

    keys: BytesColumn
    values: BytesColumn
    topics: tuple[str, ...]
    topic_of: Any = None
    partitions: Any = None
    timestamps: Any = None
    headers: BytesColumn | None = None
    header_counts: Any = None
    more_headers: Headers = ()

    def __len__(self) -> int:
        return len(self.values.lengths)

    @classmethod
    def of(cls, batch: pa.RecordBatch, topic: str | None, more_headers: Headers | None = None) -> RecordRows:
        """The rows of a batch whose columns have the names and types of records."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        topics, topic_of = _topics(columns.get("topic"), topic, batch.num_rows)
        more = list(more_headers or ())
        headers, counts = _headers(columns.get("headers"), more)
        return cls(
            BytesColumn.of_array(columns.get("key"), batch.num_rows),
            BytesColumn.of_array(columns["value"], batch.num_rows),
            topics,
            topic_of,
            _partitions(columns.get("partition")),
            _timestamps(columns.get("timestamp")),
            headers,
            counts,
            more,
        )

    @property
    def sizes(self) -> Any:
        """By row, the bytes of key, value and headers."""
        import numpy as np

        contents = [self.keys, self.values] + ([] if self.headers is None else [self.headers])
        return sum(np.maximum(column.lengths, 0) for column in contents)

    def parts(self, rows: int, size: int) -> Iterator[RecordRows]:
        """The rows in parts of at most so many rows and bytes, or of one row."""
        import numpy as np

        ends, begin = np.cumsum(self.sizes), 0
        while begin < len(self):
            before = int(ends[begin - 1]) if begin else 0
            end = min(begin + rows, max(begin + 1, int(ends.searchsorted(before + size, "right"))), len(self))
            yield self if end - begin == len(self) else self._part(slice(begin, end))
            begin = end

    def _part(self, some: slice) -> RecordRows:
        return RecordRows(
            self.keys.part(some),
            self.values.part(some),
            self.topics,
            None if self.topic_of is None else self.topic_of[some],
            None if self.partitions is None else self.partitions[some],
            None if self.timestamps is None else self.timestamps[some],
            None if self.headers is None else self.headers.part(some),
            None if self.header_counts is None else self.header_counts[some],
            self.more_headers,
        )

    def by_topic(self) -> Iterator[tuple[str, Any]]:
        """The topics of the rows, and which rows are theirs."""
        for place, topic in enumerate(self.topics):
            yield topic, slice(None) if self.topic_of is None else (self.topic_of == place).nonzero()[0]


def _topics(column: pa.Array | None, topic: str | None, rows: int) -> tuple[tuple[str, ...], Any]:
    import numpy as np

    names: list[str] = []
    topic_of = None
    if column is not None:
        coded = column.dictionary_encode()
        names = coded.dictionary.to_pylist()
        topic_of = coded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if "" in names:
        raise ConfigurationError(
            "A row names a topic without a name.", expected="a topic's name, or null for the pipeline's own topic"
        )
    if rows and (column is None or column.null_count):
        if topic is None:
            raise ConfigurationError(
                "A row names no topic, and the pipeline has none.",
                remedy="Fill the column topic, or give the pipeline a topic.",
            )
        if topic not in names:
            names.append(topic)
        if column is not None and topic_of is not None:
            topic_of[column.is_null().to_numpy(zero_copy_only=False)] = names.index(topic)
    return tuple(names), topic_of if len(names) > 1 else None


def _partitions(column: pa.Array | None) -> Any:
    if column is None or column.null_count == len(column):
        return None
    if (wrong := _outside(column, 0, _MOST_PARTITIONS)) is not None:
        raise ConfigurationError(f"Column partition has the value {wrong}.", expected="0 or more, or null")
    return _numbers(column, null=-1)


def _timestamps(column: pa.Array | None) -> Any:
    import pyarrow as pa

    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if (wrong := _outside(column, 1, 1 << 63)) is not None:
        raise ConfigurationError(
            f"Column timestamp has the value {wrong} ms.", expected="a moment after 1970, or null for now"
        )
    return _numbers(column, null=0)


def _outside(column: pa.Array, least: int, end: int) -> int | None:
    """A value below ``least``, or from ``end`` on."""
    import pyarrow.compute as pc

    extremes = pc.min_max(column).as_py().values()
    return next((value for value in extremes if not least <= value < end), None)


def _numbers(column: pa.Array, null: int) -> Any:
    import pyarrow as pa

    return column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)


def _headers(column: pa.Array | None, more: Headers) -> tuple[BytesColumn | None, Any]:
    """The headers of rows and their numbers; None where no row has its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None or pa.types.is_null(column.type):
        return None, None
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = column.flatten()
    if not len(entries):
        return None, None
    fields = dict(zip((field.name for field in entries.type), entries.flatten(), strict=True))
    if fields["key"].null_count:
        raise ConfigurationError("A header in column headers has no key.", expected="a name for every header")
    names, contents = (BytesColumn.of_array(fields[name], len(entries)) for name in ("key", "value"))
    every = np.arange(len(entries))
    pieces = [varints(names.lengths), (names.array(), every), varints(contents.lengths), (contents.array(), every)]
    own = _joined(pieces, len(entries), np.concatenate([[0], np.cumsum(counts)]))
    if not more:
        return own, counts
    every = np.arange(len(counts))
    pieces = [(own.array(), every), (pa.array([header_bytes(more)], pa.large_binary()), 0)]
    return _joined(pieces, len(counts), np.arange(len(counts) + 1)), counts + len(more)


def _joined(pieces: Sequence[Pieces], count: int, borders: Any) -> BytesColumn:
    """Rows of groups of pieces."""
    import numpy as np

    _, places, data = Layout(pieces, count).laid(0, count).buffers()
    ends = np.frombuffer(places, np.int64)[borders * len(pieces)]
    return BytesColumn(np.frombuffer(data or b"", np.uint8), ends[:-1], np.diff(ends))
