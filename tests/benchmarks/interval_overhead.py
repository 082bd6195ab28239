"""What an interval run costs beyond its rows: in one process, with rows that cost nothing, so all of it is protocol.

Its peer is itself: with 10 completed intervals in the ledger against 100,000, and with one slice against 256. What
Spark itself needs for a start comes on top and is not ours.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.ledger import CompleteRecord, complete_record
from airflow_eos_provider.interval.protocol.stage import Stage
from airflow_eos_provider.interval.protocol.topics import prepare_topics
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.producer import TransactionalProducer
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.benchmarks.result import Result
from tests.faults.local_runner import write_slices

TRIALS = 3
INTERVALS = (10, 100_000)
SLICES = (1, 256)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def run(console: Console) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.up(LabOptions(name="overhead", workers=1, root=Path(folder)))
        try:
            lab.stop_worker(0)
            kafka = KafkaSettings.of(lab.bootstrap_servers)
            few, many = (_pipeline(kafka, count) for count in INTERVALS)
            growth = [_median(pipeline, 4, console) for pipeline in (few, many)]
            slices = [_median(few, count, console) for count in SLICES]
        finally:
            lab.down()
    return [
        Result(
            "interval_overhead",
            growth[1],
            growth[0],
            "lower",
            "s",
            f"a run of 4 slices without rows: ledger of {INTERVALS[1]:,} completed intervals against {INTERVALS[0]}",
        ),
        Result(
            "interval_overhead_slices",
            slices[1],
            slices[0],
            "lower",
            "s",
            f"a run without rows: {SLICES[1]} slices against {SLICES[0]}, by one task",
        ),
    ]


def _pipeline(kafka: KafkaSettings, completed: int) -> Pipeline:
    """A pipeline with so many completed intervals in its ledger."""
    pipeline = Pipeline(f"after-{completed}", f"bench-{completed}", kafka, topic="bench", target_partitions=1)
    prepare_topics(pipeline)
    producer = TransactionalProducer(kafka, "bench-fill", timeout_ms=60_000, known_topic=pipeline.ledger_topic)
    producer.init()
    producer.begin()
    for number in range(completed):
        record = CompleteRecord(_run(pipeline, number), records=1_000, digest="0" * 32, slices=4)
        producer.produce(pipeline.ledger_topic, *complete_record(record))
        if number % 10_000 == 0:
            producer.poll()
    producer.flush()
    producer.commit()
    return pipeline


def _run(pipeline: Pipeline, number: int) -> Run:
    start = _FIRST + number * _HOUR
    return Run(pipeline.name, Interval(start, start + _HOUR))


_next_interval: dict[str, int] = {}


def _median(pipeline: Pipeline, slices: int, console: Console) -> float:
    seconds = statistics.median(_seconds(pipeline, slices) for _ in range(TRIALS))
    console.print(f"{pipeline.name}, {slices} slices: {seconds:.2f} s")
    return seconds


def _seconds(pipeline: Pipeline, slices: int) -> float:
    number = _next_interval.get(pipeline.name, INTERVALS[1])
    _next_interval[pipeline.name] = number + 1
    run = _run(pipeline, number)
    began = time.perf_counter()
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan.of(run, [{"nothing": n} for n in range(slices)], {}), tasks=1)
        assert isinstance(stage, Stage)
        write_slices(pipeline, stage, 0, read=lambda _: _no_rows())
        completed = coordinator.finish(stage)
    assert completed.slices == slices
    return time.perf_counter() - began


def _no_rows() -> Iterator[object]:
    return iter(())
