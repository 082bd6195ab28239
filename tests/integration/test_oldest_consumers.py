"""The oldest clients that Kafka 4 lets in read what the columnar producer writes, with each codec.

Each client reads all topics in a process of its own and prints a line of JSON for each record. A topic has committed
records before and behind an aborted transaction, so there are control batches of both kinds to skip.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.batch_encoder import BatchEncoder
from airflow_eos_provider.kafka.write.compression import CODECS
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from airflow_eos_provider.kafka.write.record_rows import RecordRows
from airflow_eos_provider.lab.jars.java import SHORT_LIVED, java_program
from airflow_eos_provider.lab.lab import Lab
from tests.lab.jars import jars_of
from tests.spark_session import add_jars

pytestmark = [pytest.mark.by_name, pytest.mark.timeout(1800)]

PROGRAMS = Path(__file__).with_name("oldest_consumers")
JAVA = Path(__file__).parents[1] / "java" / "Drain.java"

PARTITIONS = 2

#: Of a transaction. Together they are larger than a block of the lz4 frame, and many are larger than one of snappy's.
ROWS, ROW_BYTES = 400, 9_000

#: Batches that are larger than a block of the lz4 frame.
LARGE_BATCHES = {"batch.size": "3000000", "message.max.bytes": "6000000"}

#: Codecs of kafka-python are packages of their own.
KAFKA_PYTHON_CODECS = ("python-snappy==0.7.3", "lz4==4.4.4", "zstandard==0.25.0", "crc32c==2.7.1")

#: Topic, key, value, and headers as pairs.
Record = tuple[str, str | None, str | None, tuple[tuple[str, str | None], ...]]

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def rows_of(codec: str, first: int, chance: random.Random) -> list[Record]:
    """Texts that every client prints alike; with null keys, null values, empty values, and headers."""
    rows: list[Record] = []
    for number in range(first, first + ROWS):
        filler = chance.randbytes(chance.choice((0, 1, 30, 100, ROW_BYTES // 2))).hex()
        value = None if number % 11 == 0 else "" if number % 13 == 0 else f"{codec} {number} {filler} {'x' * 4000}"
        headers = [(), (("h", "a"),), (("h", "a"), ("null", None), ("ä", ""))][number % 3]
        rows.append((codec, None if number % 7 == 0 else f"k{number}", value, headers))
    return rows


def send(producer: TransactionalProducer, codec: str, rows: Sequence[Record]) -> None:
    """As interval runs write: many rows at a time in columns, and a record alone behind them, as a ledger's."""
    *many, (topic, key, value, headers) = rows
    producer.begin()
    encoder = BatchEncoder(codec, batch_bytes=producer.options.batch_bytes, largest=lambda topic: 6_000_000)
    columns = RecordRows.of(
        pa.RecordBatch.from_pydict(
            {
                "key": pa.array([_bytes(row[1]) for row in many], pa.binary()),
                "value": pa.array([_bytes(row[2]) for row in many], pa.binary()),
                "headers": pa.array([[{"key": k, "value": _bytes(v)} for k, v in row[3]] for row in many], HEADERS),
            }
        ),
        topic,
    )
    now_ms = time.time_ns() // 1_000_000
    producer.send([*encoder.encode(columns, lambda topic: PARTITIONS, now_ms), *encoder.flush()])
    producer.produce(topic, _bytes(key), _bytes(value), headers=[(k, _bytes(v)) for k, v in headers])
    producer.flush()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.fixture(scope="module")
def kafka(broker_lab: Lab) -> KafkaSettings:
    return KafkaSettings.of(broker_lab.bootstrap_servers)


@pytest.fixture(scope="module")
def written(broker_lab: Lab, kafka: KafkaSettings) -> dict[str, list[Record]]:
    """``committed`` and ``aborted`` records of topics that are named after their codecs."""
    chance = random.Random(4711)
    rows: dict[str, list[Record]] = {"committed": [], "aborted": []}
    for codec in CODECS:
        broker_lab.create_topic(codec, PARTITIONS, {"max.message.bytes": "6000000"})
        properties = {"compression.type": codec, **LARGE_BATCHES}
        producer = TransactionalProducer(kafka, f"old-{codec}", timeout_ms=60_000, properties=properties)
        producer.init()
        for number, end in enumerate(("committed", "aborted", "committed")):
            some = rows_of(codec, number * ROWS, chance)
            send(producer, codec, some)
            producer.commit() if end == "committed" else producer.abort()
            assert producer.unsettled is None
            rows[end] += some
        producer.close()
    return rows


def printed(command: Sequence[object]) -> list[str]:
    """The lines that a client prints on standard output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def records(lines: Sequence[str]) -> Counter[Record]:
    found = (json.loads(line) for line in lines if line.startswith("{"))
    return Counter(
        (each["topic"], each["key"], each["value"], tuple((name, value) for name, value in each["headers"]))
        for each in found
    )


def python(package: str, *others: str, program: str) -> list[object]:
    """A program with one version of its client, in an environment that uv makes for it."""
    wanted = [word for name in (package, *others) for word in ("--with", name)]
    return ["uv", "run", "--no-project", "--isolated", "--python", "3.11", *wanted, "python", PROGRAMS / program]


def require_same(found: Counter[Record], expected: Sequence[Record]) -> None:
    """Compare, and say by topic what is wrong without a page of values."""
    wanted = Counter(expected)
    missing, strange = wanted - found, found - wanted
    what = {name: Counter(row[0] for row in rows.elements()) for name, rows in (("no", missing), ("more", strange))}
    assert not missing, f"{what}, such as {str(next(iter(missing)))[:100]}"
    assert not strange, f"{what}, such as {str(next(iter(strange)))[:100]}"


def test_librdkafka_2_0(kafka: KafkaSettings, written: dict[str, list[Record]]) -> None:
    command = python("confluent-kafka==2.0.2", program="with_librdkafka.py")
    found = records(printed([*command, kafka.bootstrap_servers, *CODECS]))
    require_same(found, written["committed"])


def test_kafka_python_2_2(kafka: KafkaSettings, written: dict[str, list[Record]]) -> None:
    """The first version that reads committed records only."""
    command = python("kafka-python==2.2.0", *KAFKA_PYTHON_CODECS, program="with_kafka_python.py")
    found = records(printed([*command, kafka.bootstrap_servers, "read_committed", *CODECS]))
    require_same(found, written["committed"])


def test_kafka_python_2_1_reads_aborted_records_too(kafka: KafkaSettings, written: dict[str, list[Record]]) -> None:
    """The first version that skips control batches; it has no isolation level."""
    command = python("kafka-python==2.1.0", *KAFKA_PYTHON_CODECS, program="with_kafka_python.py")
    found = records(printed([*command, kafka.bootstrap_servers, "", *CODECS]))
    require_same(found, written["committed"] + written["aborted"])


@pytest.fixture(scope="module")
def java() -> list[object]:
    """The command of a JVM with Kafka 2.1.0, the oldest that Kafka 4 lets in (KIP-896)."""
    return [java_program(), *SHORT_LIVED, "-Xmx512m", "-cp", f"{jars_of('kafka-2.1.0')}/*"]


def test_javas_consumer_2_1(kafka: KafkaSettings, written: dict[str, list[Record]], java: list[object]) -> None:
    found = records(printed([*java, JAVA, kafka.bootstrap_servers, *CODECS]))
    require_same(found, written["committed"])


def test_javas_console_consumer_2_1(kafka: KafkaSettings, written: dict[str, list[Record]], java: list[object]) -> None:
    """It prints no headers in this version, and null as a word."""
    command = [*java, "kafka.tools.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers]
    command += ["--whitelist", "|".join(CODECS), "--isolation-level", "read_committed", "--from-beginning"]
    command += ["--property", "print.key=true", "--timeout-ms", "20000"]
    found = Counter(line for line in printed(command) if "\t" in line)
    expected = Counter(
        f"{key or 'null'}\t{'null' if value is None else value}" for _, key, value, _ in written["committed"]
    )
    assert found == expected


def test_sparks_own_reader(spark: SparkSession, kafka: KafkaSettings, written: dict[str, list[Record]]) -> None:
    add_jars(spark, sorted(jars_of("spark-sources-4.2.0").glob("*.jar")))
    reader: Any = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    reader = reader.option("subscribe", ",".join(CODECS)).option("kafka.isolation.level", "read_committed")
    rows = reader.option("includeHeaders", "true").load().collect()
    found = Counter(
        (row.topic, _text(row.key), _text(row.value), tuple((h.key, _text(h.value)) for h in row.headers or ()))
        for row in rows
    )
    require_same(found, written["committed"])


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()
