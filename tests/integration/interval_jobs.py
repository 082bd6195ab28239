"""Functions that the tests' Spark jobs run, as a user would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_eos_provider.interval import spark as spark_front
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.spark_files import FilesSource, files_source

#: A record of about this many bytes, so that a slice takes a while.
PADDING = "x" * 100


def numbered(spark: SparkSession, interval: Interval, rows: int = 1000) -> DataFrame:
    """``rows`` records, unlike any of another interval."""
    number = F.col("id")
    value = F.concat(F.lit('{"line":'), number, F.lit(f',"interval":"{interval.name}","text":"{PADDING}"}}'))
    return spark.range(rows).select(number.cast("string").alias("key"), value.alias("value"))


def numbered_values(interval: Interval, rows: int = 1000) -> list[bytes]:
    """What :func:`numbered` gives, as bytes."""
    return [f'{{"line":{n},"interval":"{interval.name}","text":"{PADDING}"}}'.encode() for n in range(rows)]


def slow_at_first(
    spark: SparkSession, interval: Interval, folder: str, seconds: float, barrier: bool = True
) -> FilesSource:
    """Files whose first one is read slowly by the first who reads it; each reader leaves a file named by its process.

    :param barrier: False takes away what keeps Spark from speculating.
    """
    if not barrier:
        spark_front.speculates = lambda session: False
    marks = Path(folder).parent / "marks"

    def slowly(batch: Any) -> Any:
        import os
        import time

        if batch.column("value")[0].as_py().startswith(b'{"line":0}'):
            first = not any(marks.iterdir())
            (marks / str(os.getpid())).touch()
            if first:
                time.sleep(seconds)  # the slow task that Spark speculates on
        return batch

    return files_source(spark, interval, f"{folder}/{{start:%Y}}*.json", format="lines", convert=slowly)


def with_chance(spark: SparkSession, interval: Interval) -> DataFrame:
    """A key by chance, which is refused."""
    return spark.range(10).select(F.rand().cast("string").alias("key"), F.lit("x").alias("value"))
