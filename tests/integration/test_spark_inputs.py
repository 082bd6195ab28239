"""The files behind a DataFrame are held to what they were when the interval was begun."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.sources import files_source, source_files as files_module
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.interval.spark.spark_files import FilesSource
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.lab.lab import Lab
from tests.integration import source_jobs
from tests.integration.interval_target import DAY, Target


@pytest.fixture
def pipeline(broker_lab: Lab) -> Pipeline:
    return Target.make(broker_lab, "inputs").pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files in a folder whose name a URI has to spell in another way."""
    place = tmp_path / "day=2013-01-01 & 100%"
    place.mkdir()
    for number in range(2):
        (place / f"part {number}.json").write_text("".join(f'{{"line":{10 * number + n}}}\n' for n in range(10)))
    return place


def values() -> list[bytes]:
    return [f'{{"line":{n}}}'.encode() for n in range(20)]


def rows(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.text(str(folder)).selectExpr("value as key", "value")


def begin_and_fail(spark: SparkSession, folder: Path, pipeline: Pipeline, **options: Any) -> None:
    """An attempt that freezes its plan and then fails."""
    bad = rows(spark, folder).withColumn("value", F.expr("if(true, raise_error('by design'), value)"))
    with pytest.raises(EosError, match="by design"):
        write_interval(bad, pipeline, DAY, slices=2, **options)


def require_exactly_once(pipeline: Pipeline) -> None:
    Target(pipeline).require_exactly_once(values())


def test_a_file_that_changes_comes_or_goes_between_attempts_is_named(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    begin_and_fail(spark, folder, pipeline)
    file, new = folder / "part 1.json", folder / "part 2.json"
    content, times = file.read_bytes(), file.stat()
    for path, found, words in (
        (file, content + b'{"line":99}\n', r"part 1\.json has changed"),
        (file, None, r"part 1\.json is gone"),
        (new, b'{"line":99}\n', r"part 2\.json, which was not there"),
    ):
        path.unlink(missing_ok=True) if found is None else path.write_bytes(found)
        with pytest.raises(ConfigurationError, match=words):
            write_interval(rows(spark, folder), pipeline, DAY)
        new.unlink(missing_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert write_interval(rows(spark, folder), pipeline, DAY).records == 20
    require_exactly_once(pipeline)


def test_an_interval_whose_file_changes_while_it_is_read_is_not_complete(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    def change(line: str) -> None:
        if line.startswith("Spark writes"):
            with (folder / "part 0.json").open("a") as file:
                file.write('{"line":99}\n')

    with pytest.raises(ConfigurationError, match=r"part 0\.json has changed"):
        write_interval(rows(spark, folder), pipeline, DAY, slices=2, report=change)
    assert completion(pipeline, Run(pipeline.name, DAY)) is None


def test_whoever_does_not_want_it_is_let_through(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    begin_and_fail(spark, folder, pipeline)
    os.utime(folder / "part 0.json", (1, 1))
    assert write_interval(rows(spark, folder), pipeline, DAY, pin_inputs=False).records == 20


def test_of_many_files_a_digest_is_kept(
    spark: SparkSession, pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MOST_FILES_IN_PLAN", 1)
    begin_and_fail(spark, folder, pipeline)
    (folder / "part 2.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="has 3 files now, which differ"):
        write_interval(rows(spark, folder), pipeline, DAY)


def test_rows_without_a_time_are_refused_or_left_out_and_counted(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    for day in ("2013-01-01", "2013-01-02"):
        (tmp_path / f"{day}.json").write_text(f'{{"at":"{day}T05:00:00"}}\n{{"at":null}}\n{{"at":"{day}T04:00:00"}}\n')

    def source(**options: Any) -> FilesSource:
        return files_source(spark, DAY, f"{tmp_path}/*.json", format="lines", time_column="at", **options)

    with pytest.raises(ConfigurationError, match=r"1 of 3 rows of the source file .* have no 'at'"):
        write_interval(source(), pipeline, DAY, spark=spark)
    with Coordinator(pipeline, Run(pipeline.name, DAY)) as coordinator:
        coordinator.abandon()

    lines: list[str] = []
    done = write_interval(source(null_times="drop"), pipeline, DAY, spark=spark, report=lines.append)

    assert done.records == 2
    assert any("2 source rows have no time" in line for line in lines), lines


def test_a_run_that_keeps_no_row_reports_the_times_that_it_has_seen(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"at":1357189200}\n{"at":1357275600}\n')

    def write(unit: str) -> list[str]:
        lines: list[str] = []
        source = files_source(spark, DAY, str(path), format="lines", time_column="at", time_unit=unit)
        assert write_interval(source, pipeline, DAY, spark=spark, report=lines.append).records == 0
        return lines

    with pytest.raises(ConfigurationError, match=r"In 'ms' none is within ten years of the interval, in 's' all are"):
        write("ms")
    with Coordinator(pipeline, Run(pipeline.name, DAY)) as coordinator:
        coordinator.abandon()
    words = "2 source rows have times outside the interval, from 2013-01-03T05:00:00+00:00 to 2013-01-04T05:00:00+00:00"
    assert any(words in line for line in write("s"))


def test_json_is_read_by_spark_with_a_schema_or_line_by_line(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    """The examples of docs/spark/sources.md."""
    day = tmp_path / "day=2013-01-01"
    day.mkdir()
    line = '{"id":"9007199254740993","zip":"07030","amount":1.10,"at":"2013-01-01T06:00:00Z"}'
    (day / "part-0.json").write_bytes(f"{line}\r\n".encode())
    rows_of_day = source_jobs.orders_of_json(spark, DAY, str(tmp_path))
    assert write_interval(rows_of_day, pipeline, DAY, slices_by="partitions").records == 1
    lines = source_jobs.orders_of_lines(spark, DAY, str(tmp_path))
    assert write_interval(lines, pipeline, DAY, spark=spark, revision=2).records == 1
    found = list[LogRecord]()
    scan_to_end(pipeline.kafka, str(pipeline.topic), found.extend)
    by_spark, as_it_is = sorted(found, key=lambda record: record.timestamp_ms)
    assert as_it_is.value == line.encode()
    assert as_it_is.key == by_spark.key == b"9007199254740993"
    assert b'"zip":"07030","amount":1.10,' in (by_spark.value or b"")


# What Spark reads is what is pinned


@pytest.mark.parametrize("slices_by", ["key", "partitions"])
def test_a_frame_whose_files_have_changed_since_it_was_made_is_refused(
    spark: SparkSession, pipeline: Pipeline, folder: Path, slices_by: str
) -> None:
    """Spark reads the bytes that it knew of when the frame was made, and no other file."""
    (folder / "part 1.json").write_text('{"line":10}\n')
    frame = rows(spark, folder)
    (folder / "part 1.json").write_text("".join(f'{{"line":{n}}}\n' for n in range(10, 20)))
    with pytest.raises(EosError, match=r"have changed since it was created: .*part 1\.json has changed"):
        write_interval(frame, pipeline, DAY, slices=2, slices_by=slices_by)
    assert completion(pipeline, Run(pipeline.name, DAY)) is None
    assert write_interval(rows(spark, folder), pipeline, DAY, slices=2, slices_by=slices_by).records == 20
    require_exactly_once(pipeline)


@pytest.mark.parametrize("way", ["key", "partitions", "files_source"])
def test_two_files_that_change_places_while_they_are_read_do_not_complete_an_interval(
    spark: SparkSession, pipeline: Pipeline, folder: Path, way: str
) -> None:
    """They have one size and one time of change, so the plan cannot tell them apart."""
    parts = [folder / f"part {number}.json" for number in range(2)]
    for part, first in zip(parts, (10, 20), strict=True):
        part.write_text("".join(f'{{"line":{first + n}}}\n' for n in range(10)))
        os.utime(part, (5, 5))

    def change_places(line: str) -> None:
        if line.startswith("Spark writes"):
            parts[0].rename(folder / "moved")
            parts[1].rename(parts[0])
            (folder / "moved").rename(parts[1])

    def write(report: Callable[[str], None]) -> Any:
        if way == "files_source":
            source = files_source(spark, DAY, f"{folder.parent}/day={{start:%Y-%m-%d}}*/*", format="lines")
            return write_interval(source, pipeline, DAY, spark=spark, report=report)
        return write_interval(rows(spark, folder), pipeline, DAY, slices=2, slices_by=way, report=report)

    with pytest.raises(ConfigurationError, match="was replaced by one of the same size and time of change"):
        write(change_places)
    assert completion(pipeline, Run(pipeline.name, DAY)) is None
