"""Rows move to the partition of the task that writes their slice."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN
from airflow_eos_provider.interval.spark.slicing import _by_task

RUN = Run.parse("p@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")


def stage_of(*assignment: tuple[int, ...], slices: int) -> Stage:
    return Stage(RUN, 0, "", ({},) * slices, assignment, {0: 0})


def rows_of(spark: SparkSession, slices: int) -> Any:
    return spark.range(0, slices, 1, 1).select(F.col("id").cast("int").alias(SLICE_COLUMN))


def places_of(
    spark: SparkSession, slices: int, assignment: tuple[tuple[int, ...], ...], rows: int | None = None
) -> dict[int, int]:
    """By slice, the task that gets its rows."""
    sliced = spark.range(0, rows or slices, 1, 1).select(F.expr(f"cast(id % {slices} as int)").alias(SLICE_COLUMN))
    moved = _by_task(sliced, stage_of(*assignment, slices=slices))
    assert moved.columns == [SLICE_COLUMN]
    placed = moved.select(SLICE_COLUMN, F.spark_partition_id().alias("task"))
    found = placed.mapInArrow(lambda batches: batches, placed.schema).distinct().collect()
    assert len(found) == len({row[SLICE_COLUMN] for row in found}), "a slice's rows are in one partition"
    return {row[SLICE_COLUMN]: row.task for row in found}


@pytest.mark.parametrize(
    ("assignment", "places"),
    [
        pytest.param(((0,), (1,), (2,), (3,)), {0: 0, 1: 1, 2: 2, 3: 3}, id="a slice a task"),
        pytest.param(((1,), (0,), (2,), (3,)), {1: 0, 0: 1, 2: 2, 3: 3}, id="in another order"),
        pytest.param(((0, 2), (1, 3)), {0: 0, 2: 0, 1: 1, 3: 1}, id="fewer tasks than slices"),
        pytest.param(((0,), (), (2, 3)), {0: 0, 2: 2, 3: 2}, id="what is committed is left out"),
    ],
)
def test_each_row_reaches_the_task_of_its_slice(
    spark: SparkSession, assignment: tuple[tuple[int, ...], ...], places: dict[int, int]
) -> None:
    assert places_of(spark, 4, assignment) == places


def test_older_sparks_without_repartition_by_id_place_rows_by_hash(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    monkeypatch.delattr(DataFrame, "repartitionById")
    monkeypatch.delattr("pyspark.sql.DataFrame.repartitionById")
    assert places_of(spark, 7, ((0, 3, 6), (1, 4), (2, 5))) == {0: 0, 3: 0, 6: 0, 1: 1, 4: 1, 2: 2, 5: 2}


def test_the_adaptive_optimizer_does_not_move_rows_to_other_tasks(spark: SparkSession) -> None:
    """Sizes at which Spark would like to join partitions, and split them."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false")
    try:
        for size in ("1b", "1g"):
            spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", size)
            assert places_of(spark, 8, tuple((n,) for n in range(8)), rows=5000) == {n: n for n in range(8)}
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.parallelismFirst")
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")


def test_sparks_jvm_is_asked_as_often_for_many_slices_as_for_few(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def questions(slices: int) -> int:
        rows, stage = rows_of(spark, slices), stage_of(tuple(range(slices)), slices=slices)
        asked: list[str] = []
        client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        send = client.send_command

        def counted(command: str, *rest: Any, **named: Any) -> Any:
            if not command.startswith("m"):  # of Python's collector: an object is not needed any more
                asked.append(command)
            return send(command, *rest, **named)

        with monkeypatch.context() as patch:
            patch.setattr(client, "send_command", counted)
            _by_task(rows, stage)
        return len(asked)

    few = questions(4)
    assert few > 0
    assert questions(64) == few
