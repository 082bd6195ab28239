"""A DataFrame's rows frozen, counted and summed up by slice: what a retry compares with the committed slices.

Spark evaluates a frame again for each action, and parts of it when an executor is lost; comparing one evaluation proves
nothing of another. So a retry evaluates its rows once, keeps them on the executors (``localCheckpoint``), compares
those, and writes from those. A part that is lost with its executor is not evaluated again: the attempt fails.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.executors.tasks import REPORT_COLUMN, SLICE_COLUMN, shipped
from airflow_eos_provider.interval.spark.files import FilesSource
from airflow_eos_provider.interval.spark.sessions import functions_of, is_remote

_REPORTS = f"{REPORT_COLUMN} string"


def frozen(rows: DataFrame, *, copied_up_to: int | None = None) -> DataFrame:
    """The rows of one evaluation: each reader of the returned frame reads these, or fails.

    The rows stay in the executors' memory and on their disks until the driver forgets the frame.

    :param copied_up_to: where Spark may start copies of slow tasks, how many tasks run at once. Two copies of a task
        each keep the rows that they have evaluated, and a reader gets those of either. So the tasks that keep the rows
        are a barrier stage, which Spark never copies. Of copies before a shuffle Spark takes one.
    """
    if copied_up_to is not None:
        rows = rows.repartition(copied_up_to, SLICE_COLUMN).mapInArrow(lambda b: b, rows.schema, barrier=True)
    kept = rows.localCheckpoint(eager=True)
    if is_remote(rows):  # pyspark gives it the active session, which may be another one than the frame's
        kept._session = kept._plan._spark_session = rows.sparkSession  # type: ignore[attr-defined]
    return kept


def figures_of_rows(rows: DataFrame, pipeline: Pipeline, run: Run, slices: Collection[int]) -> dict[int, SliceFigures]:
    """Count and digests of the rows of some slices; a slice without rows is left out."""
    wanted = rows.where(functions_of(rows).col(SLICE_COLUMN).isin(*slices))
    return _sums(wanted.mapInArrow(shipped("tally_partition", pipeline.to_dict(), run.name), _REPORTS))


def figures_of_files(
    spark: SparkSession, source: FilesSource, pipeline: Pipeline, stage: Stage, slices: Collection[int]
) -> dict[int, SliceFigures]:
    """Count and digests of the rows of some slices that are files, each read by a task of its own.

    No row leaves its file, and the files are held to their size and time of change, so nothing is kept here.
    """
    pieces = [(number, dict(stage.slices[number].source)) for number in slices]
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    function = shipped("tally_files", pipeline.to_dict(), stage.run.name, pieces, source.convert)
    return _sums(numbers.mapInArrow(function, _REPORTS))


def _sums(parts: DataFrame) -> dict[int, SliceFigures]:
    found: dict[int, SliceFigures] = {}
    for row in parts.collect():
        number, part = json.loads(row[0])
        found[number] = found.get(number, SliceFigures()) + SliceFigures.from_list(part)
    return found
