"""Headers of record batches: built by kafka-python's own writer, markers as a broker writes them."""

from __future__ import annotations

import struct
import zlib

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.batch_headers import headers
from airflow_eos_provider.kafka.admin.partition_writers import Batch, Outcome, PartitionWriters, Written
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


def records(base: int, count: int, producer_id: int = -1, *, transactional: bool = False, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=3 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        batch_size=1 << 20,
    )
    for number in range(count):
        builder.append(number, 1_700_000_000_000, b"key", b"value" * 100, [])
    return struct.pack(">q", base) + bytes(builder.build())[8:]


def marker(base: int, producer_id: int, *, commit: bool, late: bytes = b"\x00", taken: bool = False) -> bytes:
    """An end of a transaction: a control batch with one record.

    :param late: the difference between its time and its batch's, as a varint.
    :param taken: compaction has taken the record.
    """
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 7)
    body = b"\x00" + late + b"\x00" + bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\x00"
    record = b"" if taken else bytes([2 * len(body)]) + body
    after_crc = struct.pack(">hiqqqhii", 0x30, 0, 0, 0, producer_id, 3, -1, not taken) + record
    rest = struct.pack(">ibI", 0, 2, zlib.crc32(after_crc)) + after_crc
    return struct.pack(">qi", base, len(rest)) + rest


def test_headers_tell_the_producer_and_the_end_of_a_transaction_and_pass_over_records() -> None:
    log = (
        records(0, 3)
        + records(3, 2, 41, transactional=True, codec=1)
        + marker(5, 41, commit=True)
        + marker(6, 42, commit=False)
    )
    assert list(headers(log)) == [
        Batch(0, 2, -1, -1, False),
        Batch(3, 4, 41, 3, True),
        Batch(5, 5, 41, 3, True, True),
        Batch(6, 6, 42, 3, True, False),
    ]


def test_a_marker_is_read_as_compaction_leaves_it() -> None:
    """In a batch of another time (KIP-534); and a batch whose marker is gone ends nothing."""
    assert list(headers(marker(5, 41, commit=False, late=b"\xff\xb7\xf3\x52"))) == [Batch(5, 5, 41, 3, True, False)]
    assert list(headers(marker(5, 41, commit=False, taken=True))) == []


@pytest.mark.parametrize("missing", [1, 30, 500])
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(missing: int) -> None:
    log = records(0, 3) + records(3, 2, 41)
    assert [batch.base_offset for batch in headers(log[:-missing])] == [0]


def test_what_is_no_batch_of_today_is_refused() -> None:
    with pytest.raises(ValueError, match="magic 1"):
        list(headers(bytes(16) + b"\x01" + bytes(80)))


def test_a_topic_with_such_batches_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker of today writes them: the piece of log is a mock."""
    client = TransactionsClient(KafkaSettings.of("127.0.0.1:1"))
    monkeypatch.setattr(client, "_run", lambda *_: {0: bytes(16) + b"\x01" + bytes(80)})
    with pytest.raises(EosError, match="old-0 has a batch of an unsupported format: a batch of magic 1"):
        client.writers("old", {0: 0}, {0: 1})


def test_a_record_is_open_until_the_marker_of_its_producer_comes() -> None:
    writers = PartitionWriters()
    for batch in headers(
        records(10, 2) + records(12, 1, 41, transactional=True) + records(13, 1, 42, transactional=True)
    ):
        writers.take(batch)
    assert writers.at(11) == Written(None, None, Outcome.PLAIN)
    assert writers.at(12) == Written(41, 3, Outcome.OPEN)

    for batch in headers(
        marker(14, 41, commit=False) + records(15, 1, 41, transactional=True) + marker(16, 42, commit=True)
    ):
        writers.take(batch)
    assert [writers.at(offset).outcome for offset in (12, 13, 15)] == [Outcome.ABORTED, Outcome.COMMITTED, Outcome.OPEN]
    assert [writers.at(offset).is_committed for offset in (11, 12, 13, 15)] == [True, False, True, False]
    with pytest.raises(KeyError):
        writers.at(9)
