"""What a slice writer gives its producer, and in which order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from kafka.record.default_records import DefaultRecordBatch

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import task as protocol_task
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.topics import preparation as protocol_topics
from airflow_eos_provider.interval.write import slice_writer
from airflow_eos_provider.interval.write.slice_writer import STAGES, SliceWriter, StageSeconds
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.questions import TopicDescription
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.producer import Options
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch
from airflow_eos_provider.stored import from_json, to_json

RUN = Run.parse("flights@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
PIPELINE = Pipeline("flights", "etl", KafkaSettings.of("127.0.0.1:1"), topic="flights.daily")


class Recorder:
    """A producer that keeps what it is given: what reaches a broker is seen by the tests of the whole."""

    def __init__(self) -> None:
        self.options = Options()
        self.records: list[tuple[Any, ...]] = []
        self.calls: list[str] = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, **rest: Any) -> None:
        self.records.append((topic, key, value, rest.get("headers")))

    def send(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            for record in DefaultRecordBatch(bytes(batch.data)):
                self.produce(batch.topic, record.key, record.value, headers=record.headers or None)

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


def test_the_ledger_record_comes_last_and_behind_flushed_rows() -> None:
    """From its ledger record to its commit a transaction holds up the ledger's readers; no row is left to send then."""
    producer = Recorder()
    result = _writer(producer).write(0, [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})])
    assert [record[0] for record in producer.records] == ["flights.daily", "flights.daily", "etl-flights-offsets"]
    assert producer.calls == ["begin", "flush 2", "flush 3", "commit 3"]
    assert tuple(result.stage_seconds) == STAGES
    assert from_json(SliceResult, json.loads(json.dumps(to_json(result)))) == result


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


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes as the test says."""
    clock = [0.0]
    monkeypatch.setattr(slice_writer.time, "monotonic", lambda: clock[0])
    return clock


def test_waiting_for_rows_and_what_is_done_with_them_are_told_apart(now: list[float]) -> None:
    def source() -> Iterator[str]:
        for item in "ab":
            now[0] += 1
            yield item
        now[0] += 1  # the last look finds nothing

    stages = StageSeconds()
    for _ in stages.reading(source()):
        now[0] += 10
    with stages.of("commit"):
        now[0] += 100

    assert stages.seconds == {"read": 3, "produce": 20, "flush": 0, "commit": 100}
    assert tuple(stages.seconds) == STAGES
