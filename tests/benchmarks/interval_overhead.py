"""What an interval run costs beyond its rows, where rows cost nothing: all of it is protocol.

*One run* of four rows by ``write_interval``, beside the same four rows through the same Spark job that writes nothing;
with 10 completed intervals in the ledger, and with 100,000. *One slice*: a run of 256 slices without rows by one
task, without Spark, beside as many plain transactions of one record by the same producer. Each is tried several times,
in turn, in one session; the best of each counts, for what disturbs only ever slows down.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.ledger import CompleteRecord, complete_record
from airflow_eos_provider.interval.topics.preparation import prepare_topics
from airflow_eos_provider.interval.write.slice_writer import open_producer
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from tests.benchmarks.local_spark import local_spark
from tests.benchmarks.result import Result, own_lab
from tests.faults.line_slices import write_slices

TRIALS = 5
INTERVALS = (10, 100_000)
SLICES = 256
_ROWS = 4
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)

_numbers = itertools.count(INTERVALS[1])


def run(console: Console) -> list[Result]:
    with own_lab("overhead") as lab:
        kafka = KafkaSettings.of(lab.bootstrap_servers)
        few, many = (_pipeline(kafka, count) for count in INTERVALS)
        slices = _best({"slices": lambda: _run_of_slices(few), "plain": lambda: _plain_transactions(few)}, console)
        with local_spark(lab.options.root, "1g") as spark:
            frame = spark.range(0, _ROWS, 1, _ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
            ways = {
                "empty job": lambda: _empty_job(frame),
                "few": lambda: _run_by_spark(frame, few),
                "many": lambda: _run_by_spark(frame, many),
            }
            for way in ways.values():
                way()  # the first of each starts Python workers and compiles
            runs = _best(ways, console)
    beyond = {name: runs[name] - runs["empty job"] for name in ("few", "many")}
    return [
        Result(
            "interval_overhead",
            runs["many"],
            runs["empty job"],
            "lower",
            "s",
            f"a run of {_ROWS} rows and slices behind {INTERVALS[1]:,} completed intervals against a Spark job of the "
            f"same rows that writes nothing: {beyond['many']:.2f} s beyond it, {beyond['few']:.2f} s behind "
            f"{INTERVALS[0]}",
        ),
        Result(
            "interval_overhead_slices",
            slices["slices"] * 1000 / SLICES,
            slices["plain"] * 1000 / SLICES,
            "lower",
            "ms",
            f"a slice of a run of {SLICES} slices without rows by one task, all included, against a plain transaction",
        ),
    ]


def _best(ways: Mapping[str, Callable[[], None]], console: Console) -> dict[str, float]:
    """By way its seconds."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(TRIALS):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - began)
    load = os.getloadavg()[0]
    console.print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in best.items()), f"(load {load:.1f})")
    return best


def _pipeline(kafka: KafkaSettings, completed: int) -> Pipeline:
    """A pipeline with so many completed intervals in its ledger."""
    pipeline = Pipeline(f"after-{completed}", f"bench-{completed}", kafka, topic="bench", target_partitions=1)
    prepare_topics(pipeline)
    producer = TransactionalProducer(kafka, "bench-fill", timeout_ms=60_000)
    producer.init()
    producer.begin()
    for number in range(completed):
        record = CompleteRecord(_run(pipeline, number), records=1_000, digest="0" * 32, slices=4)
        producer.produce(pipeline.ledger_topic, *complete_record(record))
    producer.flush()
    producer.commit()
    return pipeline


def _run(pipeline: Pipeline, number: int) -> Run:
    start = _FIRST + number * _HOUR
    return Run(pipeline.name, Interval(start, start + _HOUR))


def _run_of_slices(pipeline: Pipeline) -> None:
    run = _run(pipeline, next(_numbers))
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{"nothing": n} for n in range(SLICES)], {}), tasks=1)
        assert isinstance(stage, Stage)
        write_slices(pipeline, stage, 0, read=lambda _: iter(()))
        completed = coordinator.finish(stage)
    assert completed.slices == SLICES


def _plain_transactions(pipeline: Pipeline) -> None:
    producer = open_producer(pipeline, f"plain-{next(_numbers)}")
    producer.init()
    for number in range(SLICES):
        producer.begin()
        producer.produce(str(pipeline.topic), b"%d" % number, b"x")
        producer.flush()
        producer.commit()


def _run_by_spark(frame: Any, pipeline: Pipeline) -> None:
    from airflow_eos_provider.interval.spark import write_interval

    completed = write_interval(frame, pipeline, _run(pipeline, next(_numbers)).interval, slices=_ROWS)
    assert (completed.records, completed.already) == (_ROWS, False)


def _empty_job(frame: Any) -> None:
    """The same rows, slices and partitions, taken by a function that drops them."""
    from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN
    from airflow_eos_provider.interval.spark.slicing import sliced, to_tasks

    def drop(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        yield from ()

    to_tasks(sliced(frame, ["key"], _ROWS), SLICE_COLUMN, _ROWS).mapInArrow(drop, "records bigint").collect()
