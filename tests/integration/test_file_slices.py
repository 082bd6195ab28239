"""Whole files are the slices of a DataFrame: written exactly once, whatever dies, and whoever takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import slicing, write_interval
from airflow_eos_provider.lab.lab import Lab
from tests.integration.interval_target import DAY, Target

FILES = 5
LINES = 30


@pytest.fixture
def pipeline(broker_lab: Lab) -> Pipeline:
    return Target.make(broker_lab, "file-slices").pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files in a folder whose name a URI has to spell in another way."""
    place = tmp_path / "day=2013-01-01 & 100%20"
    place.mkdir()
    for number in range(FILES):
        lines = (f'{{"file":{number},"line":{n}}}\n' for n in range(LINES))
        (place / f"part {number}.json").write_text("".join(lines))
    return place


def rows(spark: SparkSession, folder: Path) -> DataFrame:
    """Two records a line but for the lines 3, which are left out."""
    lines = spark.read.text(str(folder)).where("value not like '%\"line\":3}'")
    return lines.select("value", F.explode(F.array(F.lit("a"), F.lit("b"))).alias("key"))


def require_exactly_once(pipeline: Pipeline) -> None:
    values = [f'{{"file":{f},"line":{n}}}'.encode() for f in range(FILES) for n in range(LINES) if n != 3] * 2
    Target(pipeline).require_exactly_once(values)


def begin_and_die(spark: SparkSession, folder: Path, pipeline: Pipeline, **options: Any) -> None:
    """An attempt by one task, whose worker is killed each time that it begins a second slice: two are committed."""
    with pytest.MonkeyPatch.context() as patch:
        _kill(patch, folder.with_name("killed"), "begin", times=2)
        with pytest.raises(EosError, match="The Spark stage"):
            write_interval(rows(spark, folder), pipeline, DAY, slices=3, tasks=1, **options)


def test_files_are_written_once(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    done = write_interval(rows(spark, folder), pipeline, DAY, slices=3, slices_by="files")
    assert (done.slices, done.records, done.already) == (3, FILES * (LINES - 1) * 2, False)
    assert write_interval(rows(spark, folder), pipeline, DAY, slices=3, slices_by="files").already
    require_exactly_once(pipeline)


def test_a_retry_with_more_tasks_finds_the_same_files_in_the_same_slices(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    begin_and_die(spark, folder, pipeline, slices_by="files")
    report: list[str] = []
    done = write_interval(
        rows(spark, folder), pipeline, DAY, slices=5, slices_by="files", tasks=3, report=report.append
    )
    assert done.slices == 3
    assert any("comparing the input with 2 committed slices" in line for line in report), report
    require_exactly_once(pipeline)


def test_a_retry_is_held_to_the_files_and_to_what_decided_the_slices(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    begin_and_die(spark, folder, pipeline, slices_by="files")
    with pytest.raises(ConfigurationError, match=r"started with other slices: groups of whole files"):
        write_interval(rows(spark, folder), pipeline, DAY, slices=3)
    (folder / "part 9.json").write_text('{"file":9,"line":0}\n')
    with pytest.raises(ConfigurationError, match=r"part 9\.json, which was not there"):
        write_interval(rows(spark, folder), pipeline, DAY, slices_by="files")
    (folder / "part 9.json").unlink()
    with (folder / "part 1.json").open("a") as file:
        file.write('{"file":1,"line":99}\n')
    with pytest.raises(ConfigurationError, match=r"part 1\.json has changed"):
        write_interval(rows(spark, folder), pipeline, DAY, slices_by="files")


def test_a_run_that_was_begun_by_key_is_not_gone_on_with_by_files(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    begin_and_die(spark, folder, pipeline)
    with pytest.raises(ConfigurationError, match="started with other slices"):
        write_interval(rows(spark, folder), pipeline, DAY, slices_by="files")
    assert write_interval(rows(spark, folder), pipeline, DAY).records == FILES * (LINES - 1) * 2
    require_exactly_once(pipeline)


@pytest.mark.first
def test_a_task_killed_at_its_second_slice_is_taken_up_again(
    spark: SparkSession, pipeline: Pipeline, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    _kill(monkeypatch, mark, "after commit")
    done = write_interval(rows(spark, folder), pipeline, DAY, slices=3, slices_by="files", tasks=1)
    assert mark.read_text() == "x"
    assert done.records == FILES * (LINES - 1) * 2
    require_exactly_once(pipeline)


def _kill(patch: pytest.MonkeyPatch, mark: Path, moment: str, times: int = 1) -> None:
    """Have the worker of a task killed at a moment of the second transaction that it begins.

    :param mark: has a letter for each that was killed.
    :param times: so many of its attempts.
    """
    ship = slicing.shipped

    def shipped(entry: str, *arguments: Any) -> Any:
        run = ship(entry, *arguments)
        return _dying(run, mark, moment, times) if entry in ("write_file_groups", "write_partition") else run

    patch.setattr(slicing, "shipped", shipped)


def _dying(run: Any, mark: Path, moment: str, times: int) -> Any:
    def go(batches: Any) -> Any:
        import os
        import signal

        from airflow_eos_provider.kafka.write.producer import TransactionalProducer

        name = moment.removeprefix("after ")
        method, begin = getattr(TransactionalProducer, name), TransactionalProducer.begin
        begun: list[int] = []

        def counted(self: Any) -> None:
            begun.append(1)
            if len(begun) == 2:
                setattr(TransactionalProducer, name, die)
                if name == "begin":
                    die(self)
            begin(self)

        def die(self: Any, *arguments: Any) -> None:
            if moment.startswith("after "):
                method(self, *arguments)
            with mark.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        if not mark.exists() or len(mark.read_text()) < times:
            TransactionalProducer.begin = counted  # type: ignore[method-assign]  # the worker dies with it
        yield from run(batches)

    return go
