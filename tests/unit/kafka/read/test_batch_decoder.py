"""Fetched record batches; tests/integration/test_reading.py compares what comes of them with librdkafka."""

from __future__ import annotations

import struct

import pytest

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.partition_writers import Batch, Outcome, PartitionWriters, Written
from airflow_eos_provider.kafka.read.batch_decoder import Decoder
from airflow_eos_provider.kafka.read.fetched import FetchOptions, LogRecord
from airflow_eos_provider.kafka.write.record_batches import Record, encode_records

TRANSACTIONAL, CONTROL = 0x10, 0x20


def batch(base: int, *values: str, codec: str = "none", producer: int | None = None, append_ms: int = 0) -> bytes:
    """A batch as it stands in the log, of a transaction if it has a producer."""
    records: list[Record] = [
        (b"k", value.encode(), [("h", b"v"), ("n", None)], 1000 + n) for n, value in enumerate(values)
    ]
    data = bytearray(encode_records("t", 0, records, codec, 1 << 30).data)
    struct.pack_into(">q", data, 0, base)
    (attributes,) = struct.unpack_from(">h", data, 21)
    if producer is None:
        attributes &= ~TRANSACTIONAL
    struct.pack_into(">qh", data, 43, *((-1, -1) if producer is None else (producer, 0)))
    if append_ms:
        attributes |= 0x08
        struct.pack_into(">q", data, 35, append_ms)
    struct.pack_into(">h", data, 21, attributes)
    return bytes(data)


def marker(offset: int, producer: int, *, commits: bool, late: bytes = b"\0", empty: bool = False) -> bytes:
    """The batch that ends a transaction.

    :param late: the difference between its time and its batch's, as a varint.
    :param empty: compaction has taken the marker itself.
    """
    record = bytes([0, *late, 0, 8]) + struct.pack(">hh", 0, commits) + bytes([12]) + bytes(6) + bytes([0])
    record = b"" if empty else bytes([2 * len(record)]) + record
    attributes = TRANSACTIONAL | CONTROL
    header = struct.pack(
        ">qiibIhiqqqhii", offset, 49 + len(record), 0, 2, 0, attributes, 0, 0, 0, producer, 0, -1, not empty
    )
    return header + record


def decoder(*, committed: bool = True, headers: bool = False, batches: bool = False) -> Decoder:
    isolation = "read_committed" if committed else "read_uncommitted"
    return Decoder("t", 0, FetchOptions(isolation, headers, 10, batches))


def read(
    data: bytes, position: int = 0, aborted: tuple[tuple[int, int], ...] = (), *, committed: bool = True
) -> tuple[list[tuple[int, str]], int]:
    records, end = decoder(committed=committed).decode(data, position, aborted)
    return [(record.offset, (record.value or b"").decode()) for record in records], end


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_read_whole(codec: str) -> None:
    records, end = decoder(headers=True).decode(batch(5, "a", "b" * 99, codec=codec), 5, ())
    headers: list[tuple[str, str | bytes | None]] = [("h", b"v"), ("n", None)]
    assert records == [
        LogRecord("t", 0, 5, 1000, b"k", b"a", headers),
        LogRecord("t", 0, 6, 1001, b"k", b"b" * 99, headers),
    ]
    assert end == 7


def test_a_topic_with_the_brokers_time_has_that() -> None:
    records, _ = decoder().decode(batch(0, "a", "b", append_ms=7), 0, ())
    assert [record.timestamp_ms for record in records] == [7, 7]


def test_records_before_the_position_are_left_out() -> None:
    assert read(batch(0, "a", "b", "c") + batch(3, "d"), 2) == ([(2, "c"), (3, "d")], 4)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    whole = batch(0, "a") + batch(1, "b")
    for end in (len(whole) - 1, len(batch(0, "a")) + 60, len(batch(0, "a"))):
        assert read(whole[:end]) == ([(0, "a")], 1)
    assert read(b"", 4) == ([], 4)


def test_an_aborted_transactions_records_are_left_out_and_only_those() -> None:
    log = (
        batch(0, "one aborts", producer=1)
        + batch(1, "two commits", producer=2)
        + batch(2, "plain")
        + marker(3, 1, commits=False)
        + batch(4, "one again", producer=1)
        + marker(5, 2, commits=True)
        + marker(6, 1, commits=True)
        + batch(7, "one aborts again", producer=1)
        + marker(8, 1, commits=False)
    )
    kept = [(1, "two commits"), (2, "plain"), (4, "one again")]
    assert read(log, aborted=((1, 7), (1, 0))) == (kept, 9)
    uncommitted, end = read(log, committed=False)
    assert (len(uncommitted), end) == (5, 9)


def test_an_aborts_marker_is_known_where_compaction_has_given_its_batch_another_time() -> None:
    """KIP-534. Otherwise what the producer commits later would be left out."""
    log = (
        batch(0, "aborted", producer=1)
        + marker(1, 1, commits=False, late=b"\xff\xb7\xf3\x52")
        + batch(2, "committed", producer=1)
    )
    assert read(log, aborted=((1, 0),)) == ([(2, "committed")], 3)


def test_a_batch_whose_marker_compaction_has_taken_ends_nothing() -> None:
    log = batch(0, "aborted", producer=1) + marker(1, 2, commits=False, empty=True) + batch(2, "too", producer=1)
    assert read(log, aborted=((1, 0),)) == ([], 3)
    assert read(batch(0, "a") + marker(1, 1, commits=False, empty=True)) == ([(0, "a")], 2)


def heads(data: bytes) -> list[Batch]:
    return decoder(committed=False, batches=True).decode(data, 0, ())[0]


def test_headers_tell_the_producer_and_the_end_of_a_transaction_and_pass_over_records() -> None:
    log = batch(0, "a", "b", "c") + batch(3, "d", "e", producer=41, codec="gzip")
    ends = marker(5, 41, commits=True) + marker(6, 42, commits=False)
    assert heads(log + ends) == [
        Batch(0, 2, -1, -1, False),
        Batch(3, 4, 41, 0, True),
        Batch(5, 5, 41, 0, True, True),
        Batch(6, 6, 42, 0, True, False),
    ]


def test_a_marker_is_read_as_compaction_leaves_it() -> None:
    """In a batch of another time (KIP-534); and a batch whose marker is gone ends nothing."""
    assert heads(marker(5, 41, commits=False, late=b"\xff\xb7\xf3\x52")) == [Batch(5, 5, 41, 0, True, False)]
    assert heads(marker(5, 41, commits=False, empty=True)) == []


def test_a_record_is_open_until_the_marker_of_its_producer_comes() -> None:
    def after(log: bytes) -> None:
        for each in heads(log):
            writers.take(each)

    writers = PartitionWriters()
    after(batch(10, "a") + batch(11, "b", producer=41) + batch(12, "c", producer=42))
    assert writers.at(10) == Written(None, None, Outcome.PLAIN)
    assert writers.at(11) == Written(41, 0, Outcome.OPEN)
    after(marker(13, 41, commits=False) + batch(14, "d", producer=41) + marker(15, 42, commits=True))
    assert [writers.at(offset).outcome for offset in (11, 12, 14)] == [Outcome.ABORTED, Outcome.COMMITTED, Outcome.OPEN]
    assert [writers.at(offset).is_committed for offset in (10, 11, 12, 14)] == [True, False, True, False]
    with pytest.raises(KeyError):
        writers.at(9)


@pytest.mark.parametrize(
    "data",
    [
        batch(3, "a")[:16] + b"\1" + batch(3, "a")[17:],
        batch(3, "a")[:61] + b"\xff" * (len(batch(3, "a")) - 61),
        batch(3, "a", codec="zstd")[:61] + bytes(len(batch(3, "a", codec="zstd")) - 61),
    ],
    ids=["of an old format", "with a broken record", "that cannot be unpacked"],
)
def test_a_batch_that_cannot_be_decoded_is_named_without_its_content(data: bytes) -> None:
    with pytest.raises(EosError, match=r"offset 3 of topic t, partition 0, cannot be decoded"):
        read(data)
