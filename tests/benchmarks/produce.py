"""Two million records in one transaction: the interval writer beside Kafka's own ProducerPerformance.

Both are one process with one producer on the same broker, idle otherwise, with the same linger and batch size. Neither
counts the start of its runtime, both count the commit.
"""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.topics.preparation import prepare_topics
from airflow_eos_provider.interval.write.slice_writer import SliceWriter, open_producer
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.jars.jars import class_path, jar_folder
from airflow_eos_provider.lab.jars.java import java_program
from airflow_eos_provider.lab.lab import Lab
from tests.benchmarks.result import Result, own_lab

RECORDS = 2_000_000
RECORD_BYTES = 200
BATCH_ROWS = 10_000
TRIALS = 3


def run(console: Console) -> list[Result]:
    with own_lab("produce") as lab:
        ours, java = [], []
        for trial in range(TRIALS):
            ours.append(_ours(lab, f"ours-{trial}"))
            java.append(_java(lab, f"java-{trial}"))
            console.print(f"  trial {trial + 1}: ours {ours[-1]:,.0f}/s, Java {java[-1]:,.0f}/s", style="dim")
    return [
        Result(
            "produce_vs_java",
            max(ours),
            max(java),
            "higher",
            "records/s",
            f"{RECORDS:,} records of {RECORD_BYTES} bytes in one transaction, one process, digest and ledger record "
            "included, against ProducerPerformance with a transactional id",
        )
    ]


def _ours(lab: Lab, topic: str) -> float:
    lab.create_topic(topic, 1)
    settings = KafkaSettings.of(lab.bootstrap_servers)
    pipeline = Pipeline(name=topic, group_id="benchmark", kafka=settings, topic=topic, transaction_timeout_ms=300_000)
    prepare_topics(pipeline)
    run_ = Run(topic, Interval(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)))
    stage = Stage(run_, 0, "benchmark", (), (), dict.fromkeys(range(pipeline.ledger_partitions), 0))
    values = pa.array([uuid.uuid4().bytes * (RECORD_BYTES // 16) + b"x" * (RECORD_BYTES % 16)] * BATCH_ROWS)
    batch = pa.RecordBatch.from_arrays([values.cast(pa.binary())], names=["value"])
    producer = open_producer(pipeline, pipeline.transactional_id(run_, 0))
    producer.init()
    began = time.monotonic()
    result = SliceWriter(pipeline, stage, producer).write(0, (batch for _ in range(RECORDS // BATCH_ROWS)))
    assert result.records == RECORDS
    return RECORDS / (time.monotonic() - began)


def _java(lab: Lab, topic: str) -> float:
    lab.create_topic(topic, 1)
    command = [
        str(java_program()),
        "-Xmx512m",
        "-cp",
        class_path(jar_folder(lab.options.connect_version)),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "300000"),
        "--command-property",
        f"bootstrap.servers={lab.bootstrap_servers}",
        *("linger.ms=20", "batch.size=1000000", "buffer.memory=268435456", "transaction.timeout.ms=300000"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    totals = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(totals[-1][0]) == RECORDS, done.stdout
    return float(totals[-1][1])
