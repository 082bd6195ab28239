"""Three brokers, of which one is restarted every ten seconds while Spark writes two million rows, each once.

Where a restart takes longer than that, the next one follows at once.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval import Interval, KafkaSettings, Pipeline, verify_all
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.interval.spark import write_interval
from tests.faults.three_brokers import Brokers, brokers as brokers

pytestmark = [pytest.mark.by_name, pytest.mark.timeout(3600)]

ROWS, SLICES, PARTITIONS = 2_000_000, 200, 6

#: From the start of a restart to the start of the next one, seconds.
EVERY_SECONDS = 10.0

#: What share of the restarts begins with SIGKILL.
_KILLED = 0.25

#: How often the run is begun again, as by Airflow.
_TRIES = 4

INTERVAL = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


@contextmanager
def restarts(brokers: Brokers, chance: random.Random) -> Iterator[Counter[str]]:
    """Restart one broker after the other, in an order drawn by lot; yields how often each was stopped or killed."""
    done: Counter[str] = Counter()
    failures: list[BaseException] = []
    ended = threading.Event()

    def restart() -> None:
        while not ended.is_set():
            index, kill = chance.randrange(3), chance.random() < _KILLED
            next_at = time.monotonic() + EVERY_SECONDS
            try:
                brokers.lab.stop_broker(index, kill=kill)
                brokers.lab.start_broker(index)
            except BaseException as error:
                failures.append(error)
                return
            done["killed" if kill else "stopped"] += 1
            ended.wait(max(0.0, next_at - time.monotonic()))

    thread = threading.Thread(target=restart, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join(600)
    assert not failures, failures


def drained(kafka: KafkaSettings, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of a topic's committed records, read by librdkafka."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "drain",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    at_end: set[int] = set()
    deadline = time.monotonic() + 900
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {sorted(at_end)} were read to their ends"
        for message in consumer.consume(10_000, 5.0):
            if message.error() is None:
                yield message.key(), message.value()
            else:
                at_end.add(message.partition())
    consumer.close()


def frame_of(spark: SparkSession) -> DataFrame:
    """Rows whose key is their number, and whose value is the number with a hash that shows a changed byte."""
    return spark.range(ROWS).selectExpr(
        "cast(cast(id as string) as binary) as key",
        "cast(concat(cast(id as string), ' ', sha2(cast(id as string), 256), ' ', repeat('x', 40)) as binary) as value",
    )


def written(frame: DataFrame, pipeline: Pipeline) -> tuple[Completed, int]:
    """What a run says when it is complete, and in which try it was."""
    for attempt in range(1, _TRIES):
        try:
            return write_interval(frame, pipeline, INTERVAL, slices=SLICES), attempt
        except EosError as error:
            sys.stderr.write(f"attempt {attempt}: {error}\n")
    return write_interval(frame, pipeline, INTERVAL, slices=SLICES), _TRIES


def test_two_million_rows_arrive_once_while_a_broker_is_restarted_every_ten_seconds(
    spark: SparkSession, brokers: Brokers, seed: int
) -> None:
    kafka = KafkaSettings.of(brokers.lab.bootstrap_servers)
    brokers.admin.create_topics([NewTopic("rolled", PARTITIONS, 3)])["rolled"].result(180)
    pipeline = Pipeline("rolled", "rolling", kafka, topic="rolled")
    brokers.wait_until_whole()

    began = time.monotonic()
    with restarts(brokers, random.Random(seed)) as done:
        completed, attempt = written(frame_of(spark), pipeline)
        during = Counter(done)
    seconds = time.monotonic() - began
    brokers.wait_until_whole()

    sys.stderr.write(f"{ROWS} rows in {seconds:.0f} s, attempt {attempt}; restarts of brokers: {dict(during)}\n")
    assert during.total() >= 3, "hardly any broker was restarted during the run"
    assert completed.records == ROWS
    counts = np.zeros(ROWS, np.int64)
    for key, value in drained(kafka, "rolled"):
        assert key is not None
        assert value is not None
        assert value.partition(b" ")[0] == key
        counts[int(key)] += 1
    assert np.flatnonzero(counts == 0).tolist() == [], "rows are missing"
    assert np.flatnonzero(counts > 1).tolist() == [], "rows came more than once"
    assert verify_all(pipeline, ["rolled"]).holds
