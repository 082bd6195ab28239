from __future__ import annotations

import random

import pytest
from kafka.record.memory_records import MemoryRecords

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.write import crc32c
from airflow_eos_provider.kafka.write.compression import CODECS, Compression
from airflow_eos_provider.kafka.write.record_batches import Record, encode_records, seal, varint
from tests.unit.kafka.write.decoded_batches import decoded

RECORDS: list[Record] = [
    (b"k", b"v", None, 1_700_000_000_000),
    (None, None, [("a", b"1"), ("b", None), ("ä", "ü")], 1_700_000_000_005),
    (b"", b"", [], 1_699_999_999_999),
    (b"x" * 300, b"y" * 70_000, [("long", b"z" * 9_000)], 5_000_000_000_000),
]


@pytest.mark.parametrize("codec", CODECS)
def test_a_few_records_are_read_as_they_were(codec: str) -> None:
    batch = encode_records("t", 3, RECORDS, codec)
    seal(batch, 4_000_000_000, 7, 2_000_000_000)

    found = decoded(batch.data)

    assert [tuple(record) for record in found.records] == [
        (RECORDS[0][0], RECORDS[0][1], [], RECORDS[0][3]),
        (None, None, [("a", b"1"), ("b", None), ("ä", "ü".encode())], RECORDS[1][3]),
        (b"", b"", [], RECORDS[2][3]),
        (RECORDS[3][0], RECORDS[3][1], [("long", b"z" * 9_000)], RECORDS[3][3]),
    ]
    assert (batch.topic, batch.partition, batch.count) == ("t", 3, 4)
    assert (found.producer_id, found.epoch, found.sequence) == (4_000_000_000, 7, 2_000_000_000)
    assert found.attributes == 0x10 | CODECS[codec]  # transactional, with the timestamps of the creator
    assert found.crc == crc32c.crc32c(found.crc_of)


def test_kafka_python_reads_a_batch_and_its_checksum() -> None:
    batch = encode_records("t", 0, RECORDS, "gzip")
    seal(batch, 1, 0, 0)
    (found,) = MemoryRecords(bytes(batch.data))

    assert found.validate_crc()
    assert found.is_transactional
    assert [(r.key, r.value, r.timestamp) for r in found] == [(key, value, at) for key, value, _, at in RECORDS]


def test_a_second_seal_takes_the_place_of_the_first() -> None:
    batch, other = encode_records("t", 0, RECORDS[:1]), encode_records("t", 0, RECORDS[:1])
    seal(batch, 1, 2, 3)
    seal(batch, 4, 5, 6)
    seal(other, 4, 5, 6)

    assert batch.data == other.data


def test_what_a_codec_cannot_make_smaller_stays_as_it_is() -> None:
    value = random.Random(1).randbytes(100_000)
    for codec in CODECS:
        batch = encode_records("t", 0, [(None, value, None, 1)], codec)
        assert decoded(batch.data).attributes == 0x10
        assert len(batch.data) < len(value) + 100


def test_a_record_that_its_topic_does_not_take_is_refused() -> None:
    record: Record = (None, b"x" * 5_000, None, 1)
    assert encode_records("t", 0, [record], "zstd", largest=500).count == 1

    with pytest.raises(
        ConfigurationError, match=r"A batch for topic t takes 5\d\d\d bytes; records in it: 1.\n.*at most 500 bytes"
    ):
        encode_records("t", 0, [record], largest=500)


@pytest.mark.parametrize("number", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_numbers_have_the_form_of_protocol_buffers(number: int) -> None:
    """Zigzag, then seven bits at a time, the lowest first."""
    zigzag = 2 * number if number >= 0 else -2 * number - 1
    sevens = [zigzag >> shift & 0x7F for shift in range(0, max(1, zigzag.bit_length()), 7)]

    assert varint(number) == bytes([*(seven | 0x80 for seven in sevens[:-1]), sevens[-1]])


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("brotli", None, "The compression is 'brotli'.\nExpected: one of none, gzip, snappy, lz4, zstd"),
        ("snappy", 1, "Compression snappy has the level 1.\nExpected: no level"),
        ("gzip", 12, "Compression gzip has the level 12.\nExpected: 1 to 9"),
        ("zstd", 99, r"Compression zstd has the level 99.\nExpected: -\d+ to 22"),
    ],
)
def test_a_wrong_codec_or_level_is_refused(name: str, level: int | None, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Compression(name, level)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_higher_level_makes_it_smaller(codec: str) -> None:
    words = [b"alpha", b"beta", b"gamma", b"delta"]
    chance = random.Random(3)
    data = b" ".join(chance.choice(words) for _ in range(5_000))

    assert len(Compression(codec, 9).compressed(data)) < len(Compression(codec, 1).compressed(data))
