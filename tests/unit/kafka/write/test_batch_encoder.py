"""Properties of the columnar encoder, with random rows; a failure prints its seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.write import batch_encoder
from airflow_eos_provider.kafka.write.batch_encoder import BatchEncoder
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn
from airflow_eos_provider.kafka.write.compression import CODECS
from airflow_eos_provider.kafka.write.partitioner import partition_of, partitions_of
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, Headers
from airflow_eos_provider.kafka.write.record_rows import RecordRows
from tests.unit.kafka.write.decoded_batches import Record, decoded

PARTITIONS = {"t": 6, "u": 1, "v": 40}
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 33, 63, 64, 65, 200, 4095, 4096, 9000)


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201
    return random.Random(seed)


def _bytes(chance: random.Random, nulls: float = 0.1) -> bytes | None:
    return None if chance.random() < nulls else chance.randbytes(chance.choice(LENGTHS))


def _text(chance: random.Random) -> str | None:
    return None if chance.random() < 0.1 else chance.choice(("", "ä", "order ")) * chance.choice(LENGTHS[:-3])


def _own_headers(chance: random.Random) -> list[dict[str, Any]] | None:
    some = [{"key": chance.choice(("h", "ü" * 70)), "value": _bytes(chance)} for _ in range(chance.randrange(4))]
    return chance.choice((None, some))


COLUMNS: dict[str, Callable[[random.Random, int], pa.Array]] = {
    "key": lambda chance, rows: pa.array([_bytes(chance) for _ in range(rows)], pa.binary()),
    "value": lambda chance, rows: pa.array([_bytes(chance) for _ in range(rows)], pa.binary()),
    "headers": lambda chance, rows: pa.array([_own_headers(chance) for _ in range(rows)], HEADERS),
    "timestamp": lambda chance, rows: pa.array(
        [chance.choice((None, chance.randrange(1, 1 << 42), NOW_MS + chance.randrange(99))) for _ in range(rows)]
    ),
    "partition": lambda chance, rows: pa.array([chance.choice((None, 0)) for _ in range(rows)], pa.int32()),
    "topic": lambda chance, rows: pa.array([chance.choice((None, *PARTITIONS)) for _ in range(rows)], pa.string()),
}


def _batch(chance: random.Random, rows: int, names: Iterable[str]) -> pa.RecordBatch:
    """A random batch, cut out of a larger one."""
    columns = [COLUMNS[name](chance, rows + 5) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=list(names)).slice(2, rows)


def _encoded(
    batches: Iterable[pa.RecordBatch], more: Headers | None = None, encoder: BatchEncoder | None = None
) -> list[EncodedBatch]:
    encoder = encoder or BatchEncoder()
    found: list[EncodedBatch] = []
    for batch in batches:
        found += encoder.encode(RecordRows.of(batch, "t", more), PARTITIONS.__getitem__, NOW_MS)
    return found + list(encoder.flush())


def _by_partition(batches: Iterable[EncodedBatch]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for batch in batches:
        records = decoded(batch.data).records
        assert batch.count == len(records)
        found[batch.topic, batch.partition] += records
    return found


def _rows(batches: Iterable[pa.RecordBatch], more: Headers | None) -> list[tuple[str, int | None, Record]]:
    """What should be written, row by row: topic, partition (None if any), record."""
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            topic = row.get("topic") or "t"
            key, value = (
                content.encode() if isinstance(content, str) else content for content in (row.get("key"), row["value"])
            )
            partition = row.get("partition")
            if partition is None and key is not None:
                partition = partition_of(key, PARTITIONS[topic])
            headers = [(header["key"], header["value"]) for header in row.get("headers") or ()]
            record = Record(key, value, headers + list(more or ()), row.get("timestamp") or NOW_MS)  # type: ignore[arg-type]
            found.append((topic, partition, record))
    return found


def _check(batches: list[pa.RecordBatch], more: Headers | None, encoded: list[EncodedBatch]) -> None:
    """Every row is there once, where it belongs and in its order; only rows without a key may be anywhere."""
    written, expected = _by_partition(encoded), _rows(batches, more)
    for topic, partition in {
        *written,
        *((topic, partition) for topic, partition, _ in expected if partition is not None),
    }:
        rest = iter(written[topic, partition])
        for row_topic, row_partition, record in expected:
            if (row_topic, row_partition) == (topic, partition):
                assert any(record == other for other in rest), f"missing, or out of order in {topic}-{partition}"
    of_topic: dict[str, list[str]] = defaultdict(list)
    for (topic, _), records in written.items():
        of_topic[topic] += map(repr, records)
    for topic in PARTITIONS:
        assert sorted(of_topic[topic]) == sorted(
            repr(record) for row_topic, _, record in expected if row_topic == topic
        )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("more", [None, [("run", b"x" * 70)]])
def test_rows_of_any_shape_are_written_once_in_their_order(chance: random.Random, codec: str, more: Any) -> None:
    for _ in range(3):
        names = ["value", *chance.sample([name for name in COLUMNS if name != "value"], chance.randrange(6))]
        batches = [_batch(chance, chance.choice((0, 1, 2, 63, 65, 300)), names) for _ in range(3)]
        batches.append(_batch(chance, 20, ["key", "value"]))  # rows of another shape in the same batches
        encoder = BatchEncoder(codec, batch_bytes=chance.choice((1, 500, 40_000)))
        _check(batches, more, _encoded(batches, more, encoder))


BYTES = [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null()]


@pytest.mark.parametrize("key", BYTES)
@pytest.mark.parametrize("value", BYTES)
def test_each_type_of_keys_and_values_is_read(chance: random.Random, key: pa.DataType, value: pa.DataType) -> None:
    texts = [pa.array([_text(chance) for _ in range(80)], pa.string()) for _ in range(2)]
    columns = [
        pa.nulls(80) if pa.types.is_null(kind) else text.cast(kind)
        for text, kind in zip(texts, (key, value), strict=True)
    ]
    batches = [pa.RecordBatch.from_arrays(columns, names=["key", "value"]).slice(3, 70)]

    _check(batches, None, _encoded(batches))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("partition", pa.array([5, None, 0], pa.uint8())),
        ("partition", pa.array([5, None, 0], pa.uint64())),
        ("partition", pa.array([5, None, 0], pa.int64())),
        ("timestamp", pa.array([1, None, 2**32 - 1], pa.uint32())),
        ("timestamp", pa.array([1, None, 2**63 - 1], pa.uint64())),
        ("topic", pa.array(["u", None, "v"], pa.large_string())),
        ("topic", pa.array([None] * 3, pa.string())),
        ("timestamp", pa.array([None] * 3, pa.int64())),
        ("partition", pa.array([None] * 3, pa.int64())),
        ("headers", pa.nulls(3)),
        ("headers", pa.array([None, [], None], HEADERS)),
        (
            "headers",
            pa.array(
                [[{"value": "ü", "key": "k"}], [], None],
                pa.large_list(pa.struct({"value": pa.string(), "key": pa.large_string()})),
            ),
        ),
    ],
)
def test_each_type_of_the_other_columns_is_read(name: str, column: pa.Array) -> None:
    columns = [pa.array([b"a", b"b", b"c"]), pa.array([b"1", b"2", b"3"]), column]
    batches = [pa.RecordBatch.from_arrays(columns, names=["key", "value", name])]
    expected = batches
    if name == "headers" and not pa.types.is_null(column.type) and column[0].is_valid:
        expected = [
            batches[0].set_column(2, "headers", pa.array([[{"key": "k", "value": "ü".encode()}], [], None], HEADERS))
        ]

    _check(expected, None, _encoded(batches))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_timestamp_of_any_unit_counts_in_milliseconds(unit: str, zone: str | None) -> None:
    column = pa.array([NOW_MS + 5_000, None], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a", b"b"]), column.cast(pa.int64()).cast(pa.timestamp(unit, zone))], names=["value", "timestamp"]
    )

    assert {r.timestamp_ms for b in _encoded([batch]) for r in decoded(b.data).records} == {NOW_MS + 5_000, NOW_MS}


def test_bytes_below_a_null_are_not_written() -> None:
    """Arrow lets them lie there: only the bit says that the row is null."""
    offsets, data = np.array([0, 1, 4, 5], np.int32), np.frombuffer(b"axxxb", np.uint8)
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(offsets), pa.py_buffer(data)])
    (batch,) = _encoded([pa.RecordBatch.from_arrays([hidden], names=["value"])])

    assert [record.value for record in decoded(batch.data).records] == [b"a", None, b"b"]


def test_headers_below_a_null_are_not_written() -> None:
    entries = pa.StructArray.from_arrays([pa.array(["a", "b"]), pa.array([b"1", b"2"])], names=["key", "value"])
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), hidden], names=["value", "headers"])

    assert [r.headers for b in _encoded([batch]) for r in decoded(b.data).records] == [[], [("b", b"2")]]


def test_batches_of_a_partition_are_filled_over_many_calls_and_never_above_the_limit(chance: random.Random) -> None:
    rows = [pa.RecordBatch.from_pydict({"value": [chance.randbytes(100)] * 50, "key": [b"k"] * 50}) for _ in range(60)]
    *full, last = _encoded(rows, encoder=BatchEncoder(batch_bytes=20_000))

    assert all(19_000 < len(batch.data) <= 20_000 for batch in full)
    assert sum(batch.count for batch in (*full, last)) == 3_000


def test_a_topic_that_takes_less_has_smaller_batches_and_a_large_row_is_alone(chance: random.Random) -> None:
    sizes = [200, 200, 5_000, 200, 200, 200]
    rows = pa.RecordBatch.from_pydict({"value": [chance.randbytes(size) for size in sizes], "topic": ["u"] * 6})
    encoder = BatchEncoder(batch_bytes=1_000, largest={"u": 5_500, "t": 1_000}.__getitem__)
    assert [batch.count for batch in _encoded([rows], encoder=encoder)] == [2, 1, 3]

    small, large = (rows.slice(place, 1) for place in (0, 2))
    assert [batch.count for batch in _encoded([small, large], encoder=encoder)] == [1, 1]

    strict = BatchEncoder(largest={"u": 600}.__getitem__)
    with pytest.raises(
        ConfigurationError, match=r"A batch for topic u takes 50\d\d bytes; records in it: 1.\n.*at most 600 bytes"
    ):
        _encoded([rows], encoder=strict)


def test_a_row_that_only_compression_makes_small_enough_is_taken() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 50_000, b"y"], "topic": ["u", "u"]})
    encoded = _encoded([rows], encoder=BatchEncoder("zstd", largest={"u": 600}.__getitem__))

    assert [batch.count for batch in encoded] == [1, 1]
    assert max(len(batch.data) for batch in encoded) < 600


def test_open_batches_are_sent_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_encoder, "_OPEN_BYTES", 10_000)
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"x" * 100] * 200, "partition": list(range(40)) * 5, "topic": ["v"] * 200}
    )

    assert len(list(BatchEncoder().encode(RecordRows.of(rows, None), PARTITIONS.__getitem__, NOW_MS))) == 40


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 990] * 600})
    found = _encoded([rows, rows], encoder=BatchEncoder(batch_bytes=100_000))

    of_partition = [sum(batch.count for batch in found if batch.partition == place) for place in range(6)]
    assert sum(of_partition) == 1_200
    assert all(180 < count < 210 for count in of_partition), "each two batches"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"partition": [6]}, "A row names partition 6 of topic t, which has 6.\nExpected: 0 to 5"),
        ({"partition": [1], "topic": ["u"]}, "A row names partition 1 of topic u, which has 1"),
        ({"partition": [-1]}, "Column partition has the value -1"),
        ({"partition": pa.array([2**64 - 1], pa.uint64())}, "Column partition has the value 18446744073709551615"),
        ({"timestamp": [-5]}, "Column timestamp has the value -5 ms"),
        ({"timestamp": [0]}, "Column timestamp has the value 0 ms"),
        ({"topic": [""]}, "A row names a topic without a name"),
        ({"headers": pa.array([[None]], HEADERS)}, "A header in column headers has no key"),
        ({"headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)}, "A header in column headers has no key"),
    ],
)
def test_a_value_that_no_record_has_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _encoded([pa.RecordBatch.from_pydict({"value": [b"a"], **columns})])


def test_a_row_without_a_topic_is_refused() -> None:
    for columns in ({}, {"topic": pa.array(["t", None], pa.string())}):
        batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], **columns})
        with pytest.raises(ConfigurationError, match="A row names no topic"):
            RecordRows.of(batch, None)


def test_many_keys_have_the_partitions_of_each(chance: random.Random) -> None:
    for fixed in (None, 0, 3, 8):
        keys = [_bytes(chance, 0) if fixed is None else chance.randbytes(fixed) for _ in range(300)]
        for partitions in (1, 6, 1000):
            found = partitions_of(BytesColumn.of_array(pa.array(keys, pa.binary()), 300), partitions)
            assert found.tolist() == [partition_of(key or b"", partitions) for key in keys]
