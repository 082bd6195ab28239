"""The short way for rows of key and value alone equals the long way, record by record and in the digest."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import task as protocol_task
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.topics import preparation as protocol_topics
from airflow_eos_provider.interval.write.slice_writer import SliceWriter
from airflow_eos_provider.interval.write.stage_seconds import STAGES
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import TopicDescription, Topics
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn

RUN = Run.parse("flights@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
PIPELINE = Pipeline("flights", "etl", KafkaSettings.of("127.0.0.1:1"), topic="flights.daily")


class Recorder:
    """A producer that keeps what it is given: what reaches a broker is seen by the tests of the whole."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.calls: list[str] = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, **rest: Any) -> None:
        self.records.append((topic, key, value, rest.get("headers")))

    def produce_columns(self, topic: str, keys: BytesColumn, values: BytesColumn, headers: Any = None) -> None:
        for key, value in zip(keys.rows(), values.rows(), strict=True):
            self.produce(topic, key, value, headers=headers)

    def produce_all(self, topic: str, keys: Any, values: Any, headers: Any = None) -> None:
        for key, value in zip(keys, values, strict=True):
            self.produce(topic, key, value, headers=headers)
        self.calls.append(f"{len(keys)} one by one")

    def poll(self) -> None:
        pass

    def init(self) -> None:
        self.calls.append("init")

    def begin(self) -> None:
        self.calls.append("begin")

    def flush(self) -> None:
        self.calls.append(f"flush {len(self.records)}")

    def commit(self) -> None:
        self.calls.append(f"commit {len(self.records)}")

    def abort(self) -> None:
        self.calls.append("abort")


def _writer(producer: Recorder, run_header: str | None = None) -> SliceWriter:
    pipeline = replace(PIPELINE, run_header=run_header)
    writer = SliceWriter(pipeline, Stage(RUN, 0, "", (), (), {0: 0}), producer)  # type: ignore[arg-type]
    writer._topics.known["flights.daily"] = 1
    return writer


def _written(batch: pa.RecordBatch, run_header: str | None) -> tuple[list[tuple[Any, ...]], SliceFigures, int]:
    producer = Recorder()
    writer = _writer(producer, run_header)
    tally = Tally(writer._pipeline, RUN)
    writer._produce([batch], tally)
    assert Tally(writer._pipeline, RUN).take([batch]) == tally.figures  # what is compared is what was written
    return producer.records, tally.figures, tally.bytes


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


def test_the_first_rows_of_a_slice_are_handed_over_one_by_one_and_those_behind_them_in_batches() -> None:
    producer = Recorder()
    writer = _writer(producer)
    few, more, rest = (pa.RecordBatch.from_pydict({"value": [b"a"] * rows}) for rows in (1_500, 500, 1))
    for _ in range(2):
        writer.write(0, [few, more, rest, rest])
    assert [call for call in producer.calls if "one" in call] == 2 * ["1500 one by one", "500 one by one"]
    assert len(producer.records) == 2 * (2_002 + 1)


def test_the_ledger_record_comes_last_and_behind_flushed_rows() -> None:
    """From its ledger record to its commit a transaction holds up the ledger's readers; no row is left to send then."""
    producer = Recorder()
    result = _writer(producer).write(0, [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})])
    assert [record[0] for record in producer.records] == ["flights.daily", "flights.daily", "etl-flights-offsets"]
    assert producer.calls == ["begin", "2 one by one", "flush 2", "flush 3", "commit 3"]
    assert tuple(result.stage_seconds) == STAGES
    assert SliceResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_the_client_for_topics_is_there_before_a_transaction_is_open_and_serves_every_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction holds up its partitions' readers while a client looks for the brokers."""
    producer = Recorder()

    class Client(Topics):
        def __init__(self, settings: KafkaSettings) -> None:
            super().__init__(settings)
            producer.calls.append("client")

        def find(self, names: Sequence[str]) -> dict[str, TopicDescription]:
            producer.calls.append(f"look for {', '.join(names)}")
            return {name: TopicDescription("", 1, 1, 1) for name in names}

    monkeypatch.setattr(protocol_topics, "Topics", Client)
    monkeypatch.setattr(protocol_task, "open_producer", lambda *_: producer)
    task = Task(PIPELINE, Stage(RUN, 0, "", (), ((0, 1),), {0: 0}), 0)
    task._init()
    task._to_do = {0, 1}
    for number, topic in enumerate(("flights.daily", "elsewhere")):
        task.write_slice(number, [pa.RecordBatch.from_pydict({"value": [b"a"], "topic": [topic]})])
    assert producer.calls[:4] == ["init", "client", "look for flights.daily", "begin"]
    assert producer.calls.count("client") == 1
    ledger = [
        json.loads(value).get("topics", "") for topic, _, value, _ in producer.records if topic.endswith("-offsets")
    ]
    assert ledger == ["", "elsewhere"], "a slice is said to have the topics of another"
