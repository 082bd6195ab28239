"""Rows that the client takes many at a time arrive as rows taken one by one do, and fail as loudly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from airflow_eos_provider.errors import ConfigurationError, FencedError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.write.slice_writer import open_producer
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end
from airflow_eos_provider.kafka.write import native_batches
from airflow_eos_provider.kafka.write.bytes_column import BytesColumn
from airflow_eos_provider.kafka.write.native_batches import NativeBatches
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from tests.waiting import until


def column(*rows: bytes | None) -> BytesColumn:
    return BytesColumn.of_rows(rows)


def opened(pipeline: Pipeline, number: int = 0) -> TransactionalProducer:
    """With a topic that is there in the place of a ledger."""
    producer = open_producer(pipeline, f"batches-{pipeline.group_id}-{number}")
    producer._known_topic = pipeline.topic or ""
    producer.init()
    return producer


def written(pipeline: Pipeline) -> list[LogRecord]:
    assert pipeline.topic is not None
    found = read_to_end(pipeline.kafka, pipeline.topic).records
    return sorted(found, key=lambda record: (record.partition, record.offset))


@pytest.fixture(params=["batches", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "one by one":
        monkeypatch.setattr(native_batches, "_KNOWN", {})
    return str(request.param)


def test_rows_arrive_as_they_are(make_pipeline: Any, way: str) -> None:
    pipeline = make_pipeline()
    keys = [b"k", b"", b"k", "ä".encode() * 500, b"k"]
    values = [b"first", b"", None, bytes(range(256)) * 300, b"last"]
    producer = opened(pipeline)
    producer.begin()
    text = pa.array([b"another row", *values], pa.large_binary())[1:]
    producer.produce_columns(pipeline.topic, column(*keys), BytesColumn.of_array(text, 5))
    producer.flush()
    producer.commit()

    assert (producer._batches is not None) == (way == "batches")
    found = [(record.key, record.value) for record in written(pipeline)]
    assert sorted(found, key=str) == sorted(zip(keys, values, strict=True), key=str)
    assert [value for key, value in found if key == b"k"] == [b"first", None, b"last"]


def test_a_full_queue_is_waited_for_and_no_row_is_lost_doubled_or_moved(make_pipeline: Any, way: str) -> None:
    pipeline = make_pipeline(producer={"queue.buffering.max.messages": "100"})
    values = [f"{number}".encode() for number in range(5_000)]
    producer = opened(pipeline)
    producer.begin()
    for first in range(0, 5_000, 1_000):
        some = values[first : first + 1_000]
        producer.produce_columns(pipeline.topic, column(*[b"one key"] * 1_000), column(*some))
        producer.poll()
    producer.flush()
    producer.commit()

    assert [record.value for record in written(pipeline)] == values


def test_rows_of_both_kinds_in_one_transaction_stay_in_order(make_pipeline: Any) -> None:
    pipeline = make_pipeline()
    producer = opened(pipeline)
    producer.begin()
    for number in range(3):
        producer.produce_columns(pipeline.topic, column(b"k", b"k"), column(f"{number} a".encode(), b"b"))
        producer.produce(pipeline.topic, b"k", b"c", headers=[("h", b"1")])
        producer.produce_columns(pipeline.topic, column(b"k"), column(b"d"), [("h", b"2")])
    producer.commit()

    expected = [value for number in range(3) for value in (f"{number} a".encode(), b"b", b"c", b"d")]
    assert [record.value for record in written(pipeline)] == expected


def refused_topic(pipeline: Pipeline, **config: str) -> str:
    admin, name = QuietAdmin(pipeline.kafka), f"{pipeline.group_id}-refused"
    admin.answer(admin.client.create_topics([NewTopic(name, 1, 1, config=config)])[name], f"creating {name}")
    return name


@pytest.mark.parametrize(
    ("config", "value", "words"),
    [
        ({"max.message.bytes": "1000"}, b"x" * 5_000, r"A record for topic g\d+-refused is too large"),
        ({"cleanup.policy": "compact"}, b"x", r"The brokers rejected a record for topic g\d+-refused"),
        ({}, b"x" * 2_000_000, r"A record for topic g\d+-refused is too large"),
    ],
    ids=["by the topic", "without a key", "by the client"],
)
def test_a_refused_row_is_named_with_its_topic_and_nothing_is_visible(
    make_pipeline: Any, way: str, config: dict[str, str], value: bytes, words: str
) -> None:
    pipeline = make_pipeline()
    topic = refused_topic(pipeline, **config)
    producer = opened(pipeline)

    def write() -> None:
        producer.begin()
        producer.produce_columns(pipeline.topic, column(b"k"), column(b"of the same transaction"))
        producer.produce_columns(topic, column(None, None, None), column(b"a", value, b"b"))
        producer.flush()

    with pytest.raises(ConfigurationError, match=words):
        write()
    assert not producer.is_open
    assert producer.unsettled is None
    assert written(pipeline) == []

    producer.begin()  # the client is none the worse for it
    producer.produce_columns(pipeline.topic, column(b"k"), column(b"the next one"))
    producer.flush()
    producer.commit()
    assert [record.value for record in written(pipeline)] == [b"the next one"]


def test_whoever_loses_its_id_between_two_batches_learns_so(make_pipeline: Any, way: str) -> None:
    pipeline = make_pipeline()
    first = opened(pipeline)
    first.begin()
    opened(pipeline)

    def is_refused() -> bool:
        try:
            first.produce_columns(pipeline.topic, column(b"k"), column(b"v"))
            first.poll()
        except FencedError:
            return True
        return False

    until(is_refused, "the refusal of a batch", seconds=60)
    assert written(pipeline) == []


@pytest.fixture
def producer(make_pipeline: Any) -> Producer:
    return Producer({"bootstrap.servers": make_pipeline().kafka.bootstrap_servers})


def test_a_producer_that_is_not_known_has_no_batches(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(error: KafkaError, topic: str) -> None: ...

    def batches(of: Any = producer) -> NativeBatches | None:
        return NativeBatches.of(of, refused, lambda _: None)

    class Another(Producer):
        """Its objects begin as those of a producer do, or do not."""

    assert batches() is not None
    assert batches(Another({"bootstrap.servers": "127.0.0.1:1"})) is None
    with monkeypatch.context() as changed:
        changed.setattr(native_batches, "HAS_NUMPY", False)
        assert batches() is None
    with monkeypatch.context() as changed:
        changed.setattr(native_batches.confluent_kafka, "__version__", "99.0.0")
        assert batches() is None
    with monkeypatch.context() as changed:
        changed.setattr(native_batches, "_KNOWN", dict.fromkeys(native_batches._KNOWN, 8))
        assert batches() is None, "its objects are of another size"
    with monkeypatch.context() as changed:
        changed.setattr(native_batches, "_library", lambda: None)
        assert batches() is None
    other = Producer({"bootstrap.servers": "127.0.0.1:1"})
    with monkeypatch.context() as changed:
        handle = native_batches._handle(other)
        changed.setattr(native_batches, "_handle", lambda _: handle)
        assert batches() is None, "the client belongs to another object"
