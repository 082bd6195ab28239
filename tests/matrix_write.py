"""One interval written and read back with the versions that are installed here; started by ``tests/matrix.py``.

``python matrix_write.py BOOTSTRAP_SERVERS``: prints one JSON line with the versions and what each way of writing gave.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval import Interval, KafkaSettings, Pipeline, verify_all
from airflow_eos_provider.interval.spark import write_interval

#: Rows that are written, into this many slices.
ROWS, SLICES = 1000, 4

INTERVAL = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def by_write_interval(rows: DataFrame, pipeline: Pipeline) -> None:
    write_interval(rows, pipeline, INTERVAL, slices=SLICES)


def by_format(rows: DataFrame, pipeline: Pipeline) -> None:
    from airflow_eos_provider.interval.spark import by_slice, register

    register(rows.sparkSession, pipeline)
    frame = by_slice(rows, slices=SLICES).write.format("kafka_eos")
    frame.option("pipeline", pipeline.name).option("interval", INTERVAL.name).mode("append").save()


def outcome(way: Callable[[DataFrame, Pipeline], None], rows: DataFrame, bootstrap_servers: str) -> str:
    """``exactly once``, or the first sentence of what went wrong."""
    name = f"m{uuid.uuid4().hex[:8]}"
    settings = KafkaSettings.of(bootstrap_servers)
    pipeline = Pipeline(name, "matrix", settings, topic=name, target_partitions=2)
    try:
        way(rows, pipeline)
        found = verify_all(pipeline, [name])
    except EosError as error:
        return f"refused: {error.found}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return "exactly once" if found.holds and found.records == ROWS else f"failed: {found.records} records read back"


def main(bootstrap_servers: str) -> None:
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    try:
        rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "concat('row ', id) as value")
        ways = {"write_interval": by_write_interval, "format": by_format}
        results = {name: outcome(way, rows, bootstrap_servers) for name, way in ways.items()}
    finally:
        spark.stop()
    packages = ("pyspark", "pyarrow", "confluent-kafka", "kafka-python", "apache-airflow")
    versions = {package: importlib.metadata.version(package) for package in packages}
    print(json.dumps({"python": platform.python_version(), **versions, **results}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
