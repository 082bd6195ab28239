from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.topics.ledger import NO_DIGEST
from airflow_eos_provider.interval.write.digest import Digest
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

RUN = Run.parse("p@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def tally(topic: str | None = "t", run_header: str | None = None) -> Tally:
    return Tally(Pipeline("p", "g", KafkaSettings.of("b:1"), topic=topic, run_header=run_header), RUN)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_the_figures_are_of_all_rows_whatever_their_columns() -> None:
    found, expected = tally(run_header="run"), Digest()
    found.take([batch(value=["a", "b"]), batch(value=pa.array([], pa.string())), batch(value=["c"], topic=["u"])])
    found.take(
        [
            batch(
                value=pa.array([b"d"], pa.large_binary()),
                key=["k"],
                headers=pa.array([[{"key": "h", "value": None}]], HEADERS),
            )
        ]
    )
    run = ("run", RUN.name.encode())
    for row in (
        ("t", None, b"a", [run]),
        ("t", None, b"b", [run]),
        ("u", None, b"c", [run]),
        ("t", b"k", b"d", [("h", None), run]),
    ):
        expected.add(*row)  # type: ignore[arg-type]

    assert (found.figures.records, found.figures.digest, found.figures.placed) == (4, expected.text, NO_DIGEST)
    assert (found.bytes, found.topics) == (5, {"t", "u"})


def test_only_a_row_that_names_its_partition_or_time_counts_as_placed() -> None:
    stamp = datetime(2013, 1, 1, 12, tzinfo=UTC)
    texts = [
        tally().take([batch(value=["a", "b"], **columns)]).placed
        for columns in (
            {},
            {"partition": pa.array([None, None], pa.int32())},
            {"partition": [0, None]},
            {"partition": [1, None]},
            {"timestamp": [stamp, None]},
            {"timestamp": [stamp, stamp]},
            {"timestamp": [stamp, None], "partition": [1, None]},
        )
    ]

    assert texts[:2] == [NO_DIGEST] * 2
    assert len(set(texts)) == 6


def test_rows_with_a_null_key_are_counted_and_those_of_a_frame_without_keys_are_not() -> None:
    for more in ({}, {"partition": pa.array([0, 0, 0], pa.int32())}):
        found = tally()
        found.take([batch(value=["a", "b", "c"], key=pa.array(["k", None, None], pa.string()), **more)])
        found.take([batch(value=["d"])])

        assert found.null_keys == 2


def test_a_timestamp_in_seconds_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"1357000000, .*1970-01-16.*; in seconds it would be 2013-01-01T00:26:40"
    ):
        tally().take([batch(value=["a", "b"], timestamp=[1_357_000_000_000, 1_357_000_000])])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": ["a"]}, "Column value is missing"),
        ({"value": ["a"], "vlaue": ["a"]}, "Column vlaue has no place"),
        ({"value": [1]}, "Column value is of type int64"),
        ({"value": ["a"], "key": [1.5]}, "Column key is of type double"),
        ({"value": ["a"], "headers": ["x"]}, "Column headers is of type string"),
        ({"value": ["a"], "headers": [[{"key": "h", "value": 1}]]}, "Column headers is of type list<"),
        ({"value": ["a"], "partition": ["1"]}, "Column partition is of type string"),
        ({"value": ["a"], "partition": [-1]}, "Column partition has the value -1"),
        ({"value": ["a"], "timestamp": [-5]}, "Column timestamp has the value -5"),
        ({"value": ["a"], "topic": [""]}, "A row names a topic without a name"),
    ],
)
def test_a_wrong_column_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        tally().count(batch(**columns))


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="A row names no topic"):
        tally(topic=None).count(batch(value=["a"], topic=pa.array([None], pa.string())))


def test_two_columns_of_one_name_are_named() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])

    with pytest.raises(ConfigurationError, match="more than one column value"):
        tally().count(twice)
