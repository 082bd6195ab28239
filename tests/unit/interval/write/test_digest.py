from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.interval.topics.ledger import DIGEST_KIND
from airflow_eos_provider.interval.write import digest as protocol_digest
from airflow_eos_provider.interval.write.digest import Digest, hash_one
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn

#: At the borders of words, groups of words, and of what is hashed as it is.
LENGTHS = (None, 0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 220, 1023, 1024, 1025, 5000)


def _contents(chance: random.Random, count: int) -> list[bytes | None]:
    lengths = [chance.choice(LENGTHS) for _ in range(count)]
    return [None if length is None else chance.randbytes(length) for length in lengths]


@pytest.mark.parametrize("seed", range(5))
def test_many_at_once_have_the_sum_of_their_hashes(seed: int) -> None:
    chance = random.Random(seed)
    keys, values = _contents(chance, 1500), _contents(chance, 1500)
    one, columns = Digest(), Digest()
    for key, value in zip(keys, values, strict=True):
        one.add("t", key, value, [("h", b"1")])
    columns.add_columns("t", BytesColumn.of_rows(keys), BytesColumn.of_rows(values), [("h", b"1")])
    head = protocol_digest._head("t", (("h", b"1"),), b"")

    expected = sum(hash_one(head, key, value) for key, value in zip(keys, values, strict=True)) % (1 << 128)

    assert one.text == columns.text == f"{expected:032x}"


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

    assert (DIGEST_KIND, digest.text) == (2, "7f943c85fe6c1ca9d813ff43e0061bdd")


def test_bounded_memory_is_kept_for_records_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_digest, "_PENDING_BYTES", 10)
    digest, other = Digest(), Digest()
    for value in (b"123456", b"7890", b"ab"):
        digest.add("t", None, value)
    assert len(digest._values) == 1
    other.add_columns("t", BytesColumn.of_rows([None] * 3), BytesColumn.of_rows([b"123456", b"7890", b"ab"]))
    assert digest.text == other.text


def test_values_that_trade_places_change_it() -> None:
    one, other = Digest(), Digest()
    for digest, values in ((one, [b"x", b"y"]), (other, [b"y", b"x"])):
        for key, value in zip((b"a", b"b"), values, strict=True):
            digest.add("t", key, value)

    assert one.text != other.text


def test_every_bit_of_a_record_counts_in_both_halves() -> None:
    head = protocol_digest._head("t", None, b"")
    record = bytes(range(60))
    hashes = {hash_one(head, b"key", record)}
    for position in range(8 * len(record)):
        changed = bytearray(record)
        changed[position // 8] ^= 1 << position % 8
        hashes.add(hash_one(head, b"key", bytes(changed)))

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
