"""The short way for rows of key and value alone equals the long way, record by record and in the digest."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.stage import Stage
from airflow_eos_provider.interval.writer import Digest, SliceWriter
from airflow_eos_provider.kafka.config import KafkaSettings

RUN = Run.parse("flights@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")


class Recorder:
    """A producer that keeps what it is given: what reaches a broker is seen by the tests of the whole."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, **rest: Any) -> None:
        self.records.append((topic, key, value, rest.get("headers")))

    def produce_all(self, topic: str, keys: Any, values: Any, headers: Any = None) -> None:
        for key, value in zip(keys, values, strict=True):
            self.produce(topic, key, value, headers=headers)

    def poll(self) -> None:
        pass


def _written(batch: pa.RecordBatch, run_header: str | None) -> tuple[list[tuple[Any, ...]], tuple[int, int, str]]:
    settings = KafkaSettings.of("127.0.0.1:1")
    pipeline = Pipeline("flights", "etl", settings, topic="flights.daily", run_header=run_header)
    producer = Recorder()
    writer = SliceWriter(pipeline, Stage(RUN, 0, "", (), (), {0: 0}), producer)  # type: ignore[arg-type]
    writer._topics._known.add("flights.daily")
    return producer.records, writer._produce([batch])


@pytest.mark.parametrize("run_header", [None, "eos.run"])
@pytest.mark.parametrize("text", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_both_ways_write_the_same(text: pa.DataType, run_header: str | None) -> None:
    chance = random.Random(7)
    contents = [chance.choice([None, "", "x", "ä" * 300, "y" * 70_000]) for _ in range(200)]
    keys, values = pa.array(contents[:100]).cast(text), pa.array(contents[100:]).cast(text)
    plain = pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
    long = pa.RecordBatch.from_arrays(
        [keys, values, pa.array([None] * 100, pa.string())], names=["key", "value", "topic"]
    )
    assert _written(plain, run_header) == _written(long, run_header)


def test_adding_all_is_adding_each() -> None:
    keys, values = [b"a", None, b"", b"c"], [b"x" * 300, b"y", None, b""]
    for headers in (None, [("h", b"1"), ("g", None)]):
        one, other = Digest(), Digest()
        one.add_all("t", keys, values, headers)
        for key, value in zip(keys, values, strict=True):
            other.add("t", key, value, headers)
        assert one.text == other.text
