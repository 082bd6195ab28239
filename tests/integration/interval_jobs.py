"""Functions that the tests' Spark jobs run, as a user would write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.sources import files_source
from airflow_eos_provider.interval.spark import slicing, write_interval
from airflow_eos_provider.interval.spark.spark_files import FilesSource

#: A record of about this many bytes, so that a slice takes a while.
PADDING = "x" * 100


def numbered(spark: SparkSession, interval: Interval, rows: int = 1000) -> DataFrame:
    """``rows`` records, unlike any of another interval."""
    number = F.col("id")
    value = F.concat(F.lit('{"line":'), number, F.lit(f',"interval":"{interval.name}","text":"{PADDING}"}}'))
    return spark.range(rows).select(number.cast("string").alias("key"), value.alias("value"))


def numbered_values(interval: Interval, rows: int = 1000) -> list[bytes]:
    """What :func:`numbered` gives, as bytes."""
    name = interval.name
    return [f'{{"line":{n},"interval":"{name}","text":"{PADDING}"}}'.encode() for n in range(rows)]


def slow_at_first(
    spark: SparkSession, interval: Interval, folder: str, seconds: float, barrier: bool = True
) -> FilesSource:
    """Files whose first one is read slowly by the first who reads it; each reader leaves a file named by its process.

    :param barrier: False takes away what keeps Spark from speculating.
    """
    if not barrier:
        slicing.speculates = lambda session: False
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

    return files_source(
        spark, interval, f"{folder}/{{start:%Y}}-[0-9{{start:%d}}]*.json", format="lines", convert=slowly
    )


def of_folder(spark: SparkSession, interval: Interval, folder: str) -> DataFrame:
    """A day's Parquet files."""
    return spark.read.parquet(f"{folder}/{interval.start:%Y-%m-%d}")


def held_files(spark: SparkSession, interval: Interval, folder: str) -> FilesSource:
    """Files of which the second one is held up, in its reader, as long as there is no file ``go`` beside the folder.

    Each reader that is held leaves a file named by its process in the folder ``marks`` beside it, and goes on, too,
    when that file is gone.
    """
    beside = str(Path(folder).parent)

    def held(batch: Any) -> Any:
        import os
        import time
        from pathlib import Path

        if b'"file":1' in batch.column("value")[0].as_py():
            mark = Path(beside) / "marks" / str(os.getpid())
            mark.touch()
            deadline = time.monotonic() + 300
            while mark.exists() and not (Path(beside) / "go").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("nobody let the reader go on")
                time.sleep(0.02)
        return batch

    return files_source(spark, interval, f"{folder}/{{start:%Y}}-[0-9{{start:%d}}]*.json", format="lines", convert=held)


def moving(spark: SparkSession, interval: Interval, folder: str, partitions: int = 0) -> DataFrame:
    """300 rows whose keys depend on a file's content, so that a test says which evaluation has which.

    The first task that commits a slice names its executor in the file ``committed`` and goes on no further; its next
    attempt makes the file ``again`` and runs through.

    :param partitions: the rows have so many by their keys, to be written as slices; 0 if one task writes all.
    :param folder: has the file ``version``, and receives a file for each part of the input that is evaluated.
    """
    marks = Path(folder)
    ship = slicing.shipped

    def held(entry: str, *arguments: Any) -> Any:
        run = ship(entry, *arguments)
        return _held(run, marks) if entry == "write_partition" else run

    slicing.shipped = held

    def key(number: int) -> str:
        from pyspark import TaskContext

        version = (marks / "version").read_text()
        context: Any = TaskContext.get()
        (marks / f"evaluated-{context.partitionId()}-{version}").touch()
        return f"{version}-{number}"

    value = F.concat(F.lit("line "), F.col("id")).alias("value")
    rows = spark.range(0, 300, 1, 2).select(F.udf(key)("id").alias("key"), value)
    return rows.repartition(partitions, "key") if partitions else rows


def _held(run: Any, marks: Path) -> Any:
    def hold(batches: Any) -> Any:
        import os
        import time

        import psutil

        committed, again = marks / "committed", marks / "again"
        if committed.exists():
            again.touch()
        for result in run(batches):
            if not committed.exists():
                pid = psutil.Process(os.getppid()).ppid()  # the workers' daemon is the executor's child
                (marks / "committed.part").write_text(str(pid))
                (marks / "committed.part").rename(committed)
                deadline = time.monotonic() + 120
                while not again.exists():
                    if time.monotonic() > deadline:
                        raise TimeoutError("the executor was not lost, or the task not begun again")
                    time.sleep(0.02)
            yield result

    return hold


def racing(spark: SparkSession, interval: Interval, folder: str, pipeline: dict[str, Any]) -> DataFrame:
    """300 rows of which all but one slice are committed, and then two copies of a task evaluate a part: they end at one
    moment, with other keys.

    :param folder: receives a file for each copy, and ``places.json``: how many executors have each part of the frozen
        input.
    """
    marks, freeze = Path(folder), slicing.frozen

    def frozen(*arguments: Any, **options: Any) -> DataFrame:
        rows = freeze(*arguments, **options)
        sc: Any = spark.sparkContext._jsc.sc()
        sc.listenerBus().waitUntilEmpty()
        store = sc.statusStore()
        parts = [store.rdd(rdd.id()).partitions().get() for rdd in _each(store.rddList(True))]
        (marks / "places.json").write_text(json.dumps([part.executors().size() for of in parts for part in _each(of)]))
        return rows

    slicing.frozen = frozen

    def key(number: int) -> str:
        import os
        import time

        from pyspark import TaskContext

        context: Any = TaskContext.get()
        if not (marks / "retry").exists() or context.partitionId():
            return str(number)
        mine = marks / f"copy-{os.getpid()}"
        if not mine.exists():
            mine.write_text(str(len(list(marks.glob("copy-*")))))
        deadline = time.monotonic() + 120
        while len(list(marks.glob("copy-*"))) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("Spark has started no copy")
            time.sleep(0.002)
        return str(number) if mine.read_text() == "0" else f"other {number}"

    value = F.concat(F.lit("line "), F.col("id")).alias("value")
    rows = spark.range(0, 300, 1, 2).select(F.udf(key)("id").alias("key"), value)
    last = F.pmod(F.xxhash64("key"), F.lit(4)) == 3
    try:
        written = rows.withColumn("partition", F.when(last, F.lit(99)))
        write_interval(written, Pipeline.from_dict(pipeline), interval, slices=4, tasks=1)
    except ConfigurationError:
        (marks / "retry").touch()
    return rows


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def with_chance(spark: SparkSession, interval: Interval) -> DataFrame:
    """A key by chance, which is refused."""
    return spark.range(10).select(F.rand().cast("string").alias("key"), F.lit("x").alias("value"))
