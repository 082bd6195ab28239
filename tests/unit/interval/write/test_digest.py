from __future__ import annotations

import random
import sys
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.interval.topics.ledger import DIGEST_KIND
from airflow_eos_provider.interval.write import digest as protocol_digest
from airflow_eos_provider.interval.write.digest import Digest, hash_one, place_sums, row_sums
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn
from airflow_eos_provider.kafka.write.record_batches import header_bytes
from airflow_eos_provider.kafka.write.record_rows import RecordRows

#: At the borders of words, groups of words, and of what is hashed as it is.
LENGTHS = (None, 0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 220, 1023, 1024, 1025, 5000)


def _contents(chance: random.Random, count: int) -> list[bytes | None]:
    lengths = [chance.choice(LENGTHS) for _ in range(count)]
    return [None if length is None else chance.randbytes(length) for length in lengths]


HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


@pytest.mark.parametrize("seed", range(5))
def test_many_at_once_have_the_sum_of_their_hashes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    keys, values = _contents(chance, 1500), _contents(chance, 1500)
    headers = [[("h", content)] * chance.randrange(3) for content in _contents(chance, 1500)]
    topics = [chance.choice("tu") for _ in keys]
    rows = list(zip(topics, keys, values, headers, strict=True))
    own = [[{"key": name, "value": content} for name, content in some] for some in headers]
    batch = pa.RecordBatch.from_pydict(
        {"topic": topics, "key": keys, "value": values, "headers": pa.array(own, HEADERS)}
    )
    expected = sum(hash_one(topic, key, value, header_bytes(some)) for topic, key, value, some in rows) % (1 << 128)

    columns, one, alone = Digest(), Digest(), Digest()
    columns.add_sums(row_sums(RecordRows.of(batch, None)))
    for row in rows:
        one.add(*row)
    assert one.text == columns.text == f"{expected:032x}"

    monkeypatch.setattr(protocol_digest, "HAS_NUMPY", False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    for row in rows[:100]:
        alone.add(*row)
    assert alone.text == f"{sum(hash_one(t, k, v, header_bytes(h)) for t, k, v, h in rows[:100]) % (1 << 128):032x}"


@pytest.mark.parametrize("own", [False, True])
def test_headers_that_all_rows_have_count_like_their_own(own: bool) -> None:
    column = [[{"key": "a", "value": b"1"}], None] if own else [None, None]
    batch = pa.RecordBatch.from_pydict({"value": [b"x", b"y"], "headers": pa.array(column, HEADERS)})
    columns, one = Digest(), Digest()
    columns.add_sums(row_sums(RecordRows.of(batch, "t", [("run", b"z" * 50)])))
    one.add("t", None, b"x", [("a", b"1"), ("run", b"z" * 50)] if own else [("run", b"z" * 50)])
    one.add("t", None, b"y", [("run", b"z" * 50)])

    assert columns.text == one.text


def test_the_digest_is_the_same_in_any_order_and_any_division() -> None:
    chance = random.Random(11)
    table = pa.table(
        {
            "key": pa.array(_contents(chance, 900), pa.binary()),
            "value": pa.array(_contents(chance, 900), pa.binary()),
            "timestamp": [chance.choice([None, 1, 1 << 40]) for _ in range(900)],
            "partition": [chance.choice([None, 0, 7]) for _ in range(900)],
        }
    )
    texts = set()
    for division in (900, 900, 1, 37):
        digest, placed = Digest(), Digest()
        for batch in table.take(chance.sample(range(900), 900)).to_batches(max_chunksize=division):
            rows = RecordRows.of(batch, "t")
            sums = row_sums(rows)
            those, places = place_sums(rows)
            digest.add_sums(sums)
            placed.add_sums(sums[:, those] + places)
        texts.add((digest.text, placed.text))

    assert len(texts) == 1


def test_places_count_where_rows_name_them() -> None:
    places = [(-1, 0), (0, 0), (2**31 - 1, 0), (-1, 1), (-1, 2**63 - 1), (5, 1 << 40)]
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [b"x"] * len(places),
            "partition": [None if partition < 0 else partition for partition, _ in places],
            "timestamp": [at or None for _, at in places],
        }
    )
    rows, placed = RecordRows.of(batch, "t"), Digest()
    those, sums = place_sums(rows)
    placed.add_sums(row_sums(rows)[:, those] + sums)

    assert those.tolist() == [1, 2, 3, 4, 5]
    assert placed.text == f"{sum(hash_one('t', None, b'x', place=place) for place in places[1:]) % (1 << 128):032x}"


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_a_part_of_an_arrow_array_counts_as_its_rows(kind: pa.DataType) -> None:
    rows = [b"first", None, b"", b"x" * 40, b"last"]
    whole = pa.array([None if row is None else row.decode() for row in rows], pa.string()).cast(kind)
    for part in (whole, whole[1:4], whole[3:3], whole[4:]):
        found = BytesColumn.of_array(part, len(part))
        assert found.rows() == part.cast(pa.large_binary()).to_pylist()
        assert found.size == sum(len(row) for row in found.rows() if row)


def test_a_part_of_an_arrow_array_refers_to_its_own_bytes_alone() -> None:
    """Whoever copies the data, as the digest does, would copy a whole row group for each batch that was cut from it."""
    part = pa.array([b"x" * 1000, b"own", None, b"row", b"y" * 1000])[1:4]
    assert bytes(BytesColumn.of_array(part, 3).data) == b"ownrow"


@pytest.mark.parametrize("array", [None, pa.nulls(3), pa.nulls(3, pa.binary())])
def test_no_column_is_one_of_nulls(array: pa.Array | None) -> None:
    assert BytesColumn.of_array(array, 3).rows() == [None] * 3


def test_its_text_is_what_ledgers_hold() -> None:
    """A change of it is a new kind of digest: raise DIGEST_KIND."""
    digest = Digest()
    digest.add("flights", b"UA 1545", b'{"dest":"IAH"}', [("eos-run", b"1")])
    digest.add("flights", None, b"x" * 5000)

    assert (DIGEST_KIND, digest.text) == (3, "80f0dd73358f6989287d6cab60fd39d2")


def test_bounded_memory_is_kept_for_records_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_digest, "_PENDING_BYTES", 10)
    digest, other = Digest(), Digest()
    for value in (b"123456", b"7890", b"ab"):
        digest.add("t", None, value)
    assert len(digest._topics) == 1
    other.add_sums(row_sums(RecordRows.of(pa.RecordBatch.from_pydict({"value": [b"123456", b"7890", b"ab"]}), "t")))
    assert digest.text == other.text


def test_values_that_trade_places_change_it() -> None:
    one, other = Digest(), Digest()
    for digest, values in ((one, [b"x", b"y"]), (other, [b"y", b"x"])):
        for key, value in zip((b"a", b"b"), values, strict=True):
            digest.add("t", key, value)

    assert one.text != other.text


def test_every_bit_of_a_record_counts_in_both_halves() -> None:
    record = bytes(range(60))
    hashes = {hash_one("t", b"key", record)}
    for position in range(8 * len(record)):
        changed = bytearray(record)
        changed[position // 8] ^= 1 << position % 8
        hashes.add(hash_one("t", b"key", bytes(changed)))

    for half in ({found >> 64 for found in hashes}, {found & (1 << 64) - 1 for found in hashes}):
        assert len(half) == 8 * len(record) + 1


def test_the_digest_is_of_the_set_and_not_of_its_order() -> None:
    one, other = Digest(), Digest()
    for digest, values in ((one, [b"a", b"b", b"a"]), (other, [b"a", b"a", b"b"])):
        for value in values:
            digest.add("t", None, value)

    assert one.text == other.text
    other.add("t", None, b"b")
    assert one.text != other.text


def test_the_digest_tells_records_apart_whose_bytes_only_meet_elsewhere() -> None:
    records: list[Any] = [
        ("t", b"ab", b"c", None),
        ("t", b"a", b"bc", None),
        ("ta", b"b", b"c", None),
        ("t", None, b"abc", None),
        ("t", b"", b"abc", None),
        ("t", b"abc", None, None),
        ("t", b"ab", b"c", [("h", b"")]),
        ("t", b"ab", b"c", [("h", None)]),
    ]
    texts = set()
    for record in records:
        digest = Digest()
        digest.add(*record)
        texts.add(digest.text)

    assert len(texts) == len(records)
