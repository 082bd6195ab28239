from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.write.slice_writer import producer_properties, rows_of
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_row_has_all_that_a_record_has() -> None:
    stamp = datetime(2013, 1, 1, tzinfo=UTC)
    rows = batch(
        key=[b"k"],
        value=["vä"],
        topic=["t"],
        partition=pa.array([2], pa.int32()),
        timestamp=pa.array([stamp], pa.timestamp("us", "UTC")),
        headers=pa.array(
            [[{"key": "h", "value": b"x"}]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
        ),
    )

    (row,) = rows_of(rows, None)

    assert row == ("t", b"k", "vä".encode(), [("h", b"x")], 2, 1_356_998_400_000)


def test_what_a_row_leaves_out_is_left_to_kafka() -> None:
    (row,) = rows_of(batch(value=pa.array([None], pa.binary())), "t")

    assert row == ("t", None, None, None, -1, 0)


def test_the_runs_header_stands_after_the_rows_own() -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    rows = rows_of(
        batch(value=["a", "b"], headers=pa.array([[{"key": "h", "value": None}], None], kind)), "t", [("r", b"1")]
    )

    assert [row.headers for row in rows] == [[("h", None), ("r", b"1")], [("r", b"1")]]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": ["a"]}, "Column value is missing"),
        ({"value": ["a"], "vlaue": ["a"]}, "Column vlaue has no place"),
        ({"value": [1]}, "Column value is of type int64"),
        ({"value": ["a"], "key": [1.5]}, "Column key is of type double"),
        ({"value": ["a"], "headers": ["x"]}, "Column headers is of type string"),
        ({"value": ["a"], "partition": ["1"]}, "Column partition is of type string"),
        ({"value": ["a"], "partition": [-1]}, "Column partition has the value -1"),
        ({"value": ["a"], "timestamp": [-5]}, "Column timestamp has the value -5"),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, "A row names no topic"),
        ({"value": ["a"], "topic": [""]}, "A row names a topic without a name"),
    ],
)
def test_a_wrong_column_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        list(rows_of(batch(**columns), None if "topic" in columns else "t"))


def test_two_columns_of_one_name_are_named() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])

    with pytest.raises(ConfigurationError, match="more than one column value"):
        list(rows_of(twice, "t"))


@pytest.mark.parametrize(("largest", "kib"), [(None, 65_536), ("1000000", 65_536), ("100000000", 390_625)])
def test_the_producers_queue_is_bounded_and_takes_the_largest_record(largest: str | None, kib: int) -> None:
    named = {} if largest is None else {"message.max.bytes": largest}
    found = producer_properties(Pipeline("p", "g", KafkaSettings.of("b:1"), topic="t", producer=named))
    assert found["queue.buffering.max.kbytes"] == str(kib)


def test_what_a_pipeline_says_of_its_producer_wins() -> None:
    own = {"queue.buffering.max.kbytes": "1000", "linger.ms": "5"}
    found = producer_properties(Pipeline("p", "g", KafkaSettings.of("b:1"), topic="t", producer=own))
    assert {name: found[name] for name in own} == own
