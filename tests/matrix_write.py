"""One interval written and read back with the versions that are installed here; started by ``tests/matrix.py``.

``python matrix_write.py BOOTSTRAP_SERVERS``: prints one JSON line with the versions and the outcome.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import uuid
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval import Interval, KafkaSettings, Pipeline, verify_all
from airflow_eos_provider.interval.spark import write_interval

#: Rows that are written, into this many slices.
ROWS, SLICES = 1000, 4

INTERVAL = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def outcome(rows: DataFrame, bootstrap_servers: str) -> str:
    """``exactly once``, or the first sentence of what went wrong."""
    name = f"m{uuid.uuid4().hex[:8]}"
    settings = KafkaSettings.of(bootstrap_servers)
    pipeline = Pipeline(name, "matrix", settings, topic=name, target_partitions=2)
    try:
        write_interval(rows, pipeline, INTERVAL, slices=SLICES)
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
        written = outcome(rows, bootstrap_servers)
    finally:
        spark.stop()
    packages = ("pyspark", "pyarrow", "confluent-kafka", "kafka-python", "apache-airflow")
    versions = {package: importlib.metadata.version(package) for package in packages}
    print(json.dumps({"python": platform.python_version(), **versions, "write_interval": written}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
