"""Rows into Kafka: Arrow batches of one slice become one transaction, the ledger record last.

The ledger record is in the transaction of the slice's own records, so readers see both or none. It is
produced last, because from then until the commit it blocks every reader of its ledger partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_eos_provider.errors import EosError, FencedError
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, silent
from airflow_eos_provider.interval.topics.ledger import SliceMeasures, SliceRecord, slice_record
from airflow_eos_provider.interval.topics.preparation import TargetTopics
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.kafka_session import Kafka
from airflow_eos_provider.kafka.write.batch_encoder import BatchEncoder
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.kafka.write.producer import UNBOUNDED, TransactionalProducer
from airflow_eos_provider.kafka.write.record_rows import RecordRows

if TYPE_CHECKING:
    import pyarrow as pa

#: The stages of a slice, in their order: waiting for its rows (the source, or Spark's shuffle); making records of them
#: and handing those to the client; waiting until the brokers have them; the ledger record and the decision.
STAGES = ("read", "produce", "flush", "commit")


class SliceWriter:
    """Writes slices of one run under one transactional id.

    What it needs to look topics up is there before its first transaction is open.
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
        self._topics = TargetTopics(pipeline, ledgers or {}, kafka or pipeline.kafka)

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> SliceResult:
        """Write one slice: begin, produce, flush, ledger record last, commit."""
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
        options = self._producer.options
        encoder = BatchEncoder(options.compression, options.level, options.batch_bytes, lambda topic: UNBOUNDED)
        for batch in batches:
            rows = tally.count(batch)
            self._require(rows)
            now_ms = time.time_ns() // 1_000_000
            self._producer.send(list(encoder.encode(rows, self._topics.known.__getitem__, now_ms)))
        self._producer.send(list(encoder.flush()))

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
        pipeline.kafka, transactional_id, timeout_ms=pipeline.transaction_timeout_ms, properties=pipeline.producer
    )


class StageSeconds:
    """A stopwatch of the stages."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """What happens within counts to this stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] += time.monotonic() - began

    def reading(self, items: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The items; waiting for each is ``read``, what is done with it is ``produce``."""
        iterator = iter(items)
        while True:
            with self.of("read"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            with self.of("produce"):
                yield item
