"""Source offsets as records: keys by their bytes, and the view that a task has of two topics."""

from __future__ import annotations

import pytest

from airflow_eos_provider.connect.topics.source_offsets import (
    Hidden,
    Offset,
    OffsetKey,
    OffsetLog,
    OffsetRecord,
    combined,
    offset_key,
    offset_value,
)
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord


def record(raw: bytes, value: bytes | None, topic: str = "global", partition: int = 0, position: int = 0) -> LogRecord:
    return LogRecord(topic, partition, position, 1_700_000_000_000 + position, raw, value)


def newest(*records: LogRecord) -> list[OffsetRecord]:
    log = OffsetLog(records[0].topic)
    log.take(records)
    return [record for found in log.committed().values() for record in found]


FILE = b'["lines",{"filename":"/data/in.txt"}]'


def test_a_key_of_connect_has_a_connector_and_a_source_partition() -> None:
    key = OffsetKey(FILE)
    assert (key.connector, key.partition, key.hidden) == ("lines", {"filename": "/data/in.txt"}, None)


@pytest.mark.parametrize(
    ("raw", "connector", "why"),
    [
        (b'["c",null]', "c", Hidden.NULL_PARTITION),
        (b'["ord",{"z":"1","a":"2"}]', "ord", Hidden.SPELLING),  # Java's HashMap iterates a before z
        (b'["c", {"a":"1"}]', "c", Hidden.SPELLING),
        (b'["c",{"a":"\\u00e9"}]', "c", Hidden.SPELLING),
        (b'{"a":1}', None, Hidden.NOT_A_KEY),
        (b'["c",["a"]]', None, Hidden.NOT_A_KEY),
        (b'["c"]', None, Hidden.NOT_A_KEY),
        (b"\xff\x00", None, Hidden.NOT_A_KEY),
        (b"[" * 100_000, None, Hidden.NOT_A_KEY),
    ],
)
def test_what_rest_would_not_find_says_why(raw: bytes, connector: str | None, why: Hidden) -> None:
    key = OffsetKey(raw)
    assert (key.connector, key.hidden) == (connector, why)


def test_a_key_and_a_value_are_spelt_as_connect_spells_them() -> None:
    assert offset_key("ord", {"z": "1", "a": "2"}) == b'["ord",{"a":"2","z":"1"}]'
    assert offset_key("c", None) == b'["c",null]'
    assert offset_value({"position": 21}) == b'{"position":21}'


def test_the_newest_record_counts_and_a_removal_stays_known() -> None:
    (found,) = newest(record(FILE, b'{"position":1}', position=1), record(FILE, b'{"position":2}', position=2))
    assert (found.offset, found.position, found.is_removed) == ({"position": 2}, 2, False)
    (found,) = newest(record(FILE, b'{"position":1}', position=1), record(FILE, None, position=2))
    assert (found.offset, found.is_removed) == (None, True)


def test_a_connector_with_a_topic_of_its_own_reads_that_one_alone() -> None:
    """What the global topic alone has is marked, whether the own topic has never had it or has removed it."""
    removed, never = (b'["lines",{"filename":"/data/%s.txt"}]' % name for name in (b"other", b"third"))
    own = newest(record(FILE, b'{"position":2169}', topic="own"), record(removed, None, topic="own"))
    global_ = newest(
        record(FILE, b'{"position":489}'), record(removed, b'{"position":7}'), record(never, b'{"position":8}')
    )

    first, *others = combined(own, global_)
    assert (first.record.offset, first.own, first.hidden) == ({"position": 2169}, True, ())
    assert [hidden.offset for hidden in first.others] == [{"position": 489}]
    assert [(one.record.offset, one.own, one.hidden) for one in others] == [
        ({"position": 7}, False, (Hidden.NOT_READ,)),
        ({"position": 8}, False, (Hidden.NOT_READ,)),
    ]
    assert [one.hidden for one in combined([], global_)] == [(Hidden.NOT_READ,)] * 3
    assert next(combined(None, global_)) == Offset(global_[0], own=False)


def test_a_key_that_is_removed_everywhere_is_no_offset() -> None:
    assert list(combined(newest(record(FILE, None, topic="own")), newest(record(FILE, None)))) == []


def test_a_key_in_two_partitions_of_a_topic_is_marked() -> None:
    (offset,) = combined(
        None,
        newest(
            record(FILE, b'{"position":1}', partition=0, position=9),
            record(FILE, b'{"position":2}', partition=3, position=1),
        ),
    )
    assert offset.hidden == (Hidden.TWICE,)
    assert offset.record.offset == {"position": 1}  # written later


def test_a_value_that_is_no_offset_is_marked() -> None:
    (offset,) = combined(None, newest(record(FILE, b"[1]")))
    assert offset.hidden == (Hidden.NOT_AN_OFFSET,)


def test_records_without_a_key_are_passed_over() -> None:
    log = OffsetLog("global")
    log.take([LogRecord("global", 0, 0, 0, None, b"x"), record(FILE, b"{}", position=1)])
    assert [*log.committed()] == ["lines"]


def test_records_come_by_key_then_by_partition_whatever_the_order_of_the_log() -> None:
    first, second, third = (b'["lines",{"filename":"%d"}]' % n for n in range(3))
    log = OffsetLog("global")
    log.take(record(raw, b"{}", partition=p) for raw, p in ((third, 0), (first, 1), (second, 0), (first, 0)))
    found = log.committed()["lines"]
    assert [(one.key.raw, one.kafka_partition) for one in found] == [(first, 0), (first, 1), (second, 0), (third, 0)]
    assert list(found) == list(found)


def test_headers_come_back_as_they_were() -> None:
    log = OffsetLog("global")
    log.take([LogRecord("global", 0, 0, 0, FILE, b"{}", [("a", b"\xff"), ("a", None)])])
    assert [one.headers for one in log.committed()["lines"]] == [(("a", b"\xff"), ("a", None))]


def test_an_aborted_record_is_passed_over_and_an_open_one_kept_apart() -> None:
    outcomes = {1: Outcome.COMMITTED, 2: Outcome.ABORTED, 3: Outcome.OPEN}
    log = OffsetLog("global", lambda one: outcomes[one.offset])
    log.take(record(FILE, b'{"position":%d}' % position, position=position) for position in outcomes)
    assert [found.position for found in log.committed()["lines"]] == [1]
    assert [found.position for found in log.open()["lines"]] == [3]
