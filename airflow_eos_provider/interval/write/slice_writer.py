"""Rows into Kafka: Arrow batches of one slice become one transaction, the ledger record last.

The ledger record is in the transaction of the slice's own records, so readers see both or none. It is
produced last, because from then until the commit it blocks every reader of its ledger partition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, silent
from airflow_eos_provider.interval.record_columns import RECORD_COLUMNS, check_columns, is_text
from airflow_eos_provider.interval.topics.ledger import SliceMeasures, SliceRecord, slice_record
from airflow_eos_provider.interval.topics.preparation import TargetTopics
from airflow_eos_provider.interval.topics.reserved import ReservedTopics
from airflow_eos_provider.interval.write.stage_seconds import StageSeconds
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.session import Kafka
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.kafka.write.producer import Headers, TransactionalProducer
from airflow_eos_provider.kafka.write.record_rows import RecordRows

if TYPE_CHECKING:
    import pyarrow as pa

#: A queue of librdkafka's that keeps the network busy while rows are turned into records, and is no larger than that:
#: memory that is used again stays in the processor's cache, and an executor's is bounded.
_PRODUCER = {"linger.ms": "20", "batch.size": "1000000", "queue.buffering.max.messages": "50000"}

#: Of the same queue, KiB; it takes at least so many of the largest records that the pipeline allows.
_QUEUE_KIB = 64 << 10
_LEAST_RECORDS = 4

#: So many rows of a slice are handed to the client one by one, and only what comes behind them in batches: at the end
#: of the slice the last of those wait for ``linger.ms``, while a flush sends the others at once.
FEW_ROWS = 2_000

#: Rows after which the answers of the brokers are looked at.
_ROWS_BETWEEN_POLLS = 5_000


class Row(NamedTuple):
    """One record to be written; a tuple, for millions are made."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    partition: int
    timestamp_ms: int


class SliceWriter:
    """Writes slices of one run under one transactional id.

    What it needs to look topics up is there before its first transaction is open.

    :param attempt: how often that task was started before, likewise.
    :param ledgers: by topic, the pipeline whose ledger it is; no row is written there.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        stage: Stage,
        producer: TransactionalProducer,
        on_step: OnStep = silent,
        kafka: Kafka | None = None,
        *,
        task: int = 0,
        attempt: int = 0,
        ledgers: Mapping[str, str] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._task = task
        self._attempt = attempt
        self._stage = stage
        self._producer = producer
        self._step = on_step
        self._topics = TargetTopics(
            kafka or pipeline.kafka,
            ReservedTopics(pipeline, ledgers or {}),
            allow_expired=pipeline.allow_expired_records,
        )

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> SliceResult:
        """Write one slice: begin, produce, flush, ledger record last, commit.

        :param batches: its rows, with the columns of :mod:`~airflow_eos_provider.interval.record_columns`. May be
            empty: then its ledger record alone is written.
        :raises ConfigurationError: a column or topic is wrong, or a row is older than its topic keeps records; named in
            the message. The transaction is aborted.
        :raises TopicChangedError: a topic was deleted while records were written to it.
        :raises FencedError: a later attempt has taken the id.
        """
        began = time.monotonic()
        self._topics.prepare(self._pipeline.topic)
        self._step("begin")
        self._producer.begin()
        stages = StageSeconds()
        try:
            self._step("produce")
            tally = Tally(self._pipeline, self._stage.run)
            self._produce(stages.reading(batches), tally)
            written = tally.figures
            self._step("flush")
            with stages.of("flush"):
                self._producer.flush()
            with stages.of("commit"):
                self._step("ledger record")
                named = tuple(sorted(tally.topics - {self._pipeline.topic}))
                measures = SliceMeasures(tally.bytes, self._task, self._attempt, stages.seconds)
                record = SliceRecord(
                    self._stage.plan_hash, written.records, written.digest, named, written.placed, measures
                )
                self._produce_ledger_record(number, record)
                self._step("commit")
                self._producer.commit()
        except BaseException as error:
            self._producer.abort()
            if isinstance(error, EosError) and not isinstance(error, FencedError):
                self._topics.require_there()
            raise
        seconds = time.monotonic() - began
        return SliceResult(
            number,
            written.records,
            tally.bytes,
            written.digest,
            seconds,
            null_keys=tally.null_keys,
            stage_seconds=stages.seconds,
        )

    def _produce(self, batches: Iterable[pa.RecordBatch], tally: Tally) -> None:
        plain = 0
        for batch in batches:
            rows = tally.count(batch)
            self._require(rows)
            if set(batch.schema.names) <= {"key", "value"}:
                plain += len(rows)
                for topic in rows.topics:
                    if plain <= FEW_ROWS:
                        self._producer.produce_all(topic, rows.keys.rows(), rows.values.rows(), tally.headers)
                    else:
                        self._producer.produce_columns(topic, rows.keys, rows.values, tally.headers)
                self._producer.poll()
                continue
            for produced, row in enumerate(rows_of(batch, self._pipeline.topic, tally.headers), 1):
                self._producer.produce(
                    row.topic,
                    row.key,
                    row.value,
                    partition=row.partition,
                    headers=row.headers,
                    timestamp_ms=row.timestamp_ms,
                )
                if produced % _ROWS_BETWEEN_POLLS == 0:
                    self._producer.poll()
            self._producer.poll()

    def _require(self, rows: RecordRows) -> None:
        """Check the topics, partitions and ages that rows name."""
        for topic, those in rows.by_topic():
            self._topics.require(topic, -1 if rows.partitions is None else int(rows.partitions[those].max()))
            if rows.timestamps is not None:
                named = rows.timestamps[those]
                named = named[named > 0]
                if len(named):
                    self._topics.require_kept(topic, int(named.min()))

    def _produce_ledger_record(self, number: int, record: SliceRecord) -> None:
        key, value = slice_record(self._stage.run, number, record)
        partition = partition_of(key, len(self._stage.ledger_positions))
        self._producer.produce(self._pipeline.ledger_topic, key, value, partition=partition)
        self._producer.flush()


def open_producer(pipeline: Pipeline, transactional_id: str) -> TransactionalProducer:
    """A producer for records of this pipeline; not initialised."""
    return TransactionalProducer(
        pipeline.kafka,
        transactional_id,
        timeout_ms=pipeline.transaction_timeout_ms,
        known_topic=pipeline.ledger_topic,
        properties=producer_properties(pipeline),
    )


def producer_properties(pipeline: Pipeline) -> dict[str, str]:
    """librdkafka's properties of the producers that write a pipeline's records; what the pipeline says itself wins."""
    largest = int(pipeline.producer.get("message.max.bytes", "0"))
    queue = max(_QUEUE_KIB, math.ceil(_LEAST_RECORDS * largest / 1024))  # one smaller than a record never takes it
    return {**_PRODUCER, "queue.buffering.max.kbytes": str(queue), **pipeline.producer}


def rows_of(batch: pa.RecordBatch, topic: str | None, more_headers: Headers | None = None) -> Iterable[Row]:
    """The rows of a batch as records.

    :raises ConfigurationError: a column is missing, unknown or of the wrong type; a row has no topic.
    """
    check_columns(batch.schema)
    columns = [_values(batch, name) for name in RECORD_COLUMNS]
    for key, value, headers, own_topic, partition, timestamp in zip(*columns, strict=True):
        target = topic if own_topic is None else own_topic
        if target == "":
            raise ConfigurationError(
                "A row names a topic without a name.", expected="a topic's name, or null for the pipeline's own topic"
            )
        if target is None:
            raise ConfigurationError(
                "A row names no topic, and the pipeline has none.",
                remedy="Fill the column topic, or give the pipeline a topic.",
            )
        if partition is not None and partition < 0:
            raise ConfigurationError(f"Column partition has the value {partition}.", expected="0 or more, or null")
        yield Row(
            topic=target,
            key=key,
            value=value,
            headers=_headers(headers, more_headers),
            partition=-1 if partition is None else partition,
            timestamp_ms=_timestamp(timestamp),
        )


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    import pyarrow as pa

    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if name in ("key", "value") and is_text(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _headers(headers: Sequence[dict[str, Any]] | None, more: Headers | None) -> Headers | None:
    if not headers:
        return more
    found: Headers = []
    for header in headers:
        if header is None or header["key"] is None:
            raise ConfigurationError("A header in column headers has no key.", expected="a name for every header")
        found.append((header["key"], header["value"]))
    return found + (more or [])


def _timestamp(timestamp_ms: int | None) -> int:
    if timestamp_ms is None:
        return 0
    if timestamp_ms <= 0:
        raise ConfigurationError(
            f"Column timestamp has the value {timestamp_ms} ms.", expected="a moment after 1970, or null for now"
        )
    return timestamp_ms
