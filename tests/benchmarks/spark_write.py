"""Two million rows (``EOS_WRITE_ROWS``) from Parquet into Kafka by Spark, exactly once, beside its peers.

The peers: Spark's own Kafka sink, at least once; and ``foreachPartition`` with confluent-kafka, the usual way from
PySpark, at least once.
The load average is printed beside each trial: compare figures of one run only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.read.reader import scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from tests.benchmarks.cpu_seconds import CpuSeconds
from tests.benchmarks.local_spark import CORES, local_spark
from tests.benchmarks.result import Result, own_lab
from tests.benchmarks.spark_sink import sink_class_path, write_by_sink

ROWS = int(os.environ.get("EOS_WRITE_ROWS", "2000000"))
VALUE_BYTES = 220

#: ``padding``, or ``json``: rows like events, of about as many bytes.
VALUES = os.environ.get("EOS_WRITE_VALUES", "padding")
DAY = Interval(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC))

#: Each way is tried so often, in turn; the best of each counts, for what disturbs only ever slows down.
TRIALS = 4

#: The sink's producer, tuned.
SINK_TUNED = {"linger_ms": "20", "batch_size": "131072"}

#: The producer of confluent-kafka, tuned.
_LIBRDKAFKA_TUNED = {"linger.ms": "20", "batch.size": "1000000", "queue.buffering.max.messages": "50000"}

Way = Callable[[Lab, Any, str], None]


def against_foreachpartition(console: Console) -> list[Result]:
    rates = _run({"rows": _exactly_once, "files": _files_exactly_once, "peer": _for_each_partition}, console)
    peer = "foreachPartition with confluent-kafka, at least once"
    return [
        _result("write_vs_foreachpartition", rates["rows"], rates["peer"], f"a DataFrame against {peer}"),
        _result(
            "write_files_vs_foreachpartition", rates["files"], rates["peer"], f"its files as slices against {peer}"
        ),
    ]


def against_spark_sink(console: Console) -> list[Result]:
    """A DataFrame, uncompressed and with lz4, each beside the sink with the same, tuned."""
    ways = {
        "rows": _exactly_once,
        "sink": partial(write_by_sink, **SINK_TUNED),
        "sink-defaults": write_by_sink,
        "rows-lz4": partial(_exactly_once, compression="lz4"),
        "sink-lz4": partial(write_by_sink, **SINK_TUNED, compression_type="lz4"),
    }
    rates = _run(ways, console, with_sink=True)
    peer = "Spark's own sink, at least once, linger 20 ms, batch 128 KiB"
    return [
        _result("write_vs_spark_sink", rates["rows"], rates["sink"], f"a DataFrame against {peer}"),
        _result("write_vs_spark_sink_defaults", rates["rows"], rates["sink-defaults"], "against the sink's defaults"),
        _result("write_vs_spark_sink_lz4", rates["rows-lz4"], rates["sink-lz4"], f"both with lz4, against {peer}"),
    ]


def files_against_spark_sink(console: Console) -> list[Result]:
    """Files as slices, and a DataFrame by its partitions: neither needs a shuffle."""
    ways = {
        "files": _files_exactly_once,
        "partitions": _partitions_exactly_once,
        "sink": partial(write_by_sink, **SINK_TUNED),
        "files-lz4": partial(_files_exactly_once, compression="lz4"),
        "sink-lz4": partial(write_by_sink, **SINK_TUNED, compression_type="lz4"),
    }
    rates = _run(ways, console, with_sink=True)
    peer = "Spark's own sink, at least once, linger 20 ms, batch 128 KiB"
    return [
        _result("write_files_vs_spark_sink", rates["files"], rates["sink"], f"files as slices against {peer}"),
        _result("write_partitions_vs_spark_sink", rates["partitions"], rates["sink"], f"own partitions against {peer}"),
        _result("write_files_vs_spark_sink_lz4", rates["files-lz4"], rates["sink-lz4"], f"both with lz4, {peer}"),
    ]


def _result(name: str, ours: float, theirs: float, what: str) -> Result:
    what = f"Spark writes {ROWS:,} rows of {VALUE_BYTES} bytes exactly once on {CORES} cores, all included: {what}"
    return Result(name, ours, theirs, "higher", "rows/s", what)


def _run(ways: Mapping[str, Way], console: Console, *, with_sink: bool = False) -> dict[str, float]:
    """By way, the most rows a second."""
    with own_lab("spark-write") as lab:
        folder = lab.options.root
        class_path = sink_class_path(folder / "sink") if with_sink else ""
        with local_spark(folder, "2g", class_path) as spark:
            return _measure(lab, _rows(spark, folder), ways, console)


def _measure(lab: Lab, frame: Any, ways: Mapping[str, Way], console: Console) -> dict[str, float]:
    best = dict.fromkeys(ways, 0.0)
    for trial in range(TRIALS):
        for name, way in ways.items():
            topic = f"{name}-{trial}"
            lab.create_topic(topic, 4, {"file.delete.delay.ms": "1000"})
            cpu = CpuSeconds(lab.root)
            began = time.monotonic()
            with cpu.counted():
                way(lab, frame, topic)
            rate = ROWS / (time.monotonic() - began)
            _require_all(lab, topic)
            Topics(lab.kafka).delete(topic)
            best[name] = max(best[name], rate)
            line = f"  {name}, trial {trial + 1}: {rate:,.0f} rows/s, a million {cpu.text(per=ROWS / 1e6)}"
            console.print(f"{line}, load {os.getloadavg()[0]:.1f}", style="dim", soft_wrap=True)
    return best


def _rows(spark: Any, folder: Path) -> Any:
    """Eight bytes of key and as many of value as are wanted, in Parquet."""
    path = str(folder / f"{DAY.start:%F}" / "rows")
    value = f"concat(lpad(cast(id as string), 8, '0'), '{'x' * (VALUE_BYTES - 8)}')"
    if VALUES == "json":
        value = """format_string('{"id":%010d,"user":"%s","session":"%s","at":"2013-01-01T%02d:%02d:%02dZ",'
            || '"page":"/products/%05d","amount":%08.2f,"country":"%s","referrer":"https://example.org/%s"}',
            id, substr(md5(cast(id % 50000 as string)), 1, 16), substr(sha(cast(id div 20 as string)), 1, 24),
            id % 24, id % 60, id * 7 % 60, id * 31 % 90000, pmod(xxhash64(id), 1000000) / 100d,
            elt(1 + id % 5, 'DE', 'FR', 'US', 'JP', 'BR'), substr(md5(cast(id as string)), 1, 12))"""
    made = spark.range(0, ROWS, 1, CORES).selectExpr("lpad(cast(id as string), 8, '0') as key", f"{value} as value")
    made.write.parquet(path)
    return spark.read.parquet(path)


def _exactly_once(lab: Lab, frame: Any, topic: str, compression: str = "none") -> None:
    from airflow_eos_provider.interval.spark import write_interval

    write_interval(frame, _pipeline(lab, topic, compression), DAY, slices=CORES)


def _files_exactly_once(lab: Lab, frame: Any, topic: str, compression: str = "none") -> None:
    from airflow_eos_provider.interval.sources import files_source
    from airflow_eos_provider.interval.spark import write_interval

    path = frame.inputFiles()[0].rsplit("/", 2)[0].removesuffix(f"{DAY.start:%F}") + "{start:%F}/rows"
    source = files_source(frame.sparkSession, DAY, path, format="parquet")
    write_interval(source, _pipeline(lab, topic, compression), DAY, spark=frame.sparkSession)


def _partitions_exactly_once(lab: Lab, frame: Any, topic: str) -> None:
    from airflow_eos_provider.interval.spark import write_interval

    write_interval(frame, _pipeline(lab, topic), DAY, slices_by="partitions")


def _pipeline(lab: Lab, topic: str, compression: str = "none") -> Pipeline:
    kafka = KafkaSettings.of(lab.bootstrap_servers)
    return Pipeline(topic, "benchmark", kafka, topic=topic, producer={"compression.type": compression})


def _for_each_partition(lab: Lab, frame: Any, topic: str) -> None:
    settings = {"bootstrap.servers": lab.bootstrap_servers, "enable.idempotence": "true", **_LIBRDKAFKA_TUNED}

    def write(rows: Iterable[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer(settings)
        for row in rows:
            while True:
                try:
                    producer.produce(topic, key=row.key, value=row.value)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        producer.flush()

    frame.foreachPartition(write)


def _require_all(lab: Lab, topic: str) -> None:
    """A way that loses rows would be fast."""
    seen = 0

    def count(records: Any) -> None:
        nonlocal seen
        seen += len(records)

    scan_to_end(KafkaSettings.of(lab.bootstrap_servers), topic, count, timeout_seconds=120)
    assert seen == ROWS, f"{topic} has {seen} records"
