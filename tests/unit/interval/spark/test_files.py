"""The files of a frame are listed and pinned; how a task reads one: tests/unit/interval/sources/test_files.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.sources.source_files import FileReadOptions, FileSet, PinnedFile, look_at
from airflow_eos_provider.interval.spark.slicing import Files
from airflow_eos_provider.interval.spark.spark_files import (
    FilesSource,
    files_source,
    find_files,
    pinned_files,
    require_still_pinned,
)

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")

# What a frame reads


def _part(folder: Path, name: str, lines: int = 3) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("line\n" * lines)
    return folder / name


def _grown(folder: Path) -> str:
    with (folder / "part-0").open("a") as file:
        file.write("line\n")
    return "part-0 has changed"


def _replaced(folder: Path) -> str:
    _part(folder, "part-0").touch()
    os.utime(folder / "part-0", (5, 5))
    return "part-0 has changed"


def _added(folder: Path) -> str:
    return f"{_part(folder, 'part-1').name} was added"


def _gone(folder: Path) -> str:
    (folder / "part-0").unlink()
    return "part-0 is gone"


def _cached(frame: DataFrame) -> DataFrame:
    assert frame.cache().count()
    return frame


#: How a frame of the folder is made, and kept.
FRAMES: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "a folder": lambda spark, folder: spark.read.text(str(folder)),
    "a glob": lambda spark, folder: spark.read.text(f"{folder}/part*"),
    "a shuffle": lambda spark, folder: spark.read.text(str(folder)).groupBy("value").count(),
    "a subquery": lambda spark, folder: spark.range(3).where(f"id < (select count(*) from text.`{folder}`)"),
    "a cached frame": lambda spark, folder: _cached(spark.read.text(str(folder))),
    "another's cache": lambda spark, folder: _cached(spark.read.text(str(folder))) and spark.read.text(str(folder)),
}


@pytest.mark.parametrize("change", [_grown, _replaced, _added, _gone])
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_that_spark_would_read_as_it_was_is_refused(
    spark: SparkSession, tmp_path: Path, make: Callable[[SparkSession, Path], DataFrame], change: Callable[[Path], str]
) -> None:
    folder = tmp_path / "day"
    _part(folder, "part-0")
    _part(folder, "part-9")
    frame = make(spark, folder)
    assert [file.path for file in pinned_files(frame)] == [f"file:{folder}/part-0", f"file:{folder}/part-9"]
    words = change(folder)
    with pytest.raises(EosError, match=f"have changed since it was created: .*{words}"):
        pinned_files(frame)
    spark.catalog.clearCache()
    assert pinned_files(make(spark, folder))


def test_a_table_that_the_session_has_listed_before_is_refused_until_it_is_refreshed(
    spark: SparkSession, tmp_path: Path
) -> None:
    _part(tmp_path, "part-0")
    spark.sql(f"create table listed_before (value string) using text location '{tmp_path}'")
    try:
        assert spark.table("listed_before").count() == 3
        _part(tmp_path, "part-1")
        with pytest.raises(EosError, match=r"part-1 was added[^$]*spark\.catalog\.refreshTable"):
            pinned_files(spark.table("listed_before"))
        spark.catalog.refreshTable("listed_before")
        assert len(pinned_files(spark.table("listed_before"))) == 2
    finally:
        spark.sql("drop table listed_before")


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_frames_of_which_spark_leaves_out_files_are_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    _part(tmp_path, "part-0")
    with pytest.raises(ConfigurationError, match=f"{name} is true"):
        pinned_files(spark.read.option(name, "true").text(str(tmp_path)))
    spark.conf.set(f"spark.sql.files.{name}", "true")
    try:
        with pytest.raises(ConfigurationError, match=f"{name} is true"):
            pinned_files(spark.read.text(str(tmp_path)))
    finally:
        spark.conf.unset(f"spark.sql.files.{name}")


def test_after_the_stage_only_the_pinned_files_matter(spark: SparkSession, tmp_path: Path) -> None:
    place = _part(tmp_path, "part-0")
    seen = place.stat()
    frame = spark.read.text(str(tmp_path))
    pinned = pinned_files(frame)
    _part(tmp_path, "part-1")
    require_still_pinned(frame, pinned)
    place.rename(tmp_path / "moved")
    _part(tmp_path, "part-0")
    os.utime(place, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    with pytest.raises(ConfigurationError, match=r"part-0 was replaced by one of the same size and time of change"):
        require_still_pinned(frame, pinned)
    spark.catalog.refreshByPath(str(tmp_path))
    frame = spark.read.text(str(tmp_path))
    with pytest.raises(ConfigurationError, match="moved and 1 more, which was not there"):
        require_still_pinned(frame, pinned)


def test_files_that_a_filter_leaves_out_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).withColumn("day", F.col("id") % 2).write.partitionBy("day").parquet(str(tmp_path / "table"))
    frame = spark.read.parquet(str(tmp_path / "table")).where("day = 1")
    pinned = pinned_files(frame)
    assert pinned
    assert all("day=1" in file.path for file in pinned)
    _part(tmp_path / "table", "day=0/part-x")
    assert pinned_files(frame) == pinned
    assert pinned_files(spark.range(3).toDF("value")) == FileSet()


# Files that tasks read themselves


def test_folders_and_globs_are_listed_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    for name in (
        "b/part 0",
        "b/deep/part-1",
        "b/_SUCCESS",
        "b/.part.crc",
        "b/_temporary/0/part-0",
        "a/part-2",
        "c.txt",
    ):
        _part(tmp_path, name)
    (tmp_path / "a/empty").touch()

    def found(pattern: str) -> list[str]:
        return [file.path.removeprefix(f"file:{tmp_path}/") for file in find_files(spark, f"{tmp_path}/{pattern}")]

    assert found("[ab]") == ["a/part-2", "b/deep/part-1", "b/part 0"]
    assert found("b/*") == found("*/*")[1:] == ["b/deep/part-1", "b/part 0"]
    assert found("/b/*") == found("a/../b//*") == found("b/*")
    assert found("b/_temporary/0") == ["b/_temporary/0/part-0"]
    assert found("b/part 0") == ["b/part 0"]
    assert found("nothing/*") == found("nothing") == []


def test_spark_and_the_tasks_know_a_file_by_the_same_size_and_time(spark: SparkSession, tmp_path: Path) -> None:
    path = _part(tmp_path, "a b.json")
    os.utime(path, ns=(0, 1_357_016_400_123_456_789))
    (found,) = find_files(spark, str(path))
    assert found == look_at(f"file:{path}")
    assert found.modified_ms == 1_357_016_400_123
    assert found.identity


def test_files_are_selected_by_their_path_or_their_time(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(["2013-01-01.json", "2013-01-02.json"]):
        _part(tmp_path, name)
        os.utime(tmp_path / name, (0, DAY.start.timestamp() + 86400 * number))
    by_path = files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}.json", format="lines")
    by_time = files_source(spark, DAY, f"{tmp_path}/*.json", format="lines", modified=True)
    assert [file.path[-15:] for file in by_path.files] == ["2013-01-01.json"]
    assert by_time.files == by_path.files
    (planned,) = Files(by_path, spark).plan(Run("daily", DAY)).slices
    assert planned["file"]["path"].endswith("2013-01-01.json")


def hours(first: int, behind: int) -> Interval:
    midnight = datetime(2013, 1, 1, tzinfo=UTC)
    return Interval(midnight + timedelta(hours=first), midnight + timedelta(hours=behind))


@pytest.mark.parametrize(
    ("interval", "path", "from_hour", "to_hour"),
    [
        (hours(5, 29), "{start:%Y-%m-%d}.json", 5, 29),  # a day of another zone: no other day reads this file
        (hours(5, 29), "{end:%Y-%m-%d}.json", 5, 29),
        (hours(6, 7), "{start:%Y-%m-%d}.json", 0, 24),
        (hours(24, 48), "{start:%Y-%m}*.json", 0, 744),
        (hours(6, 7), "*.json", None, None),
    ],
)
def test_it_is_known_which_times_the_intervals_of_a_path_have(
    spark: SparkSession, tmp_path: Path, interval: Interval, path: str, from_hour: int | None, to_hour: int | None
) -> None:
    source = files_source(
        spark, interval, f"{tmp_path}/{path}", format="lines", time_column="at", allow_empty=True
    ).options
    expected = [edge if edge is None else hours(edge, 9999).start.isoformat() for edge in (from_hour, to_hour)]
    assert [source.others_from, source.others_to] == expected


def test_files_of_every_interval_alike_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Nothing says which"):
        files_source(spark, DAY, f"{tmp_path}/*", format="lines")
    for hourly in ("{start:%Y-%m-%d}", "{end:%Y-%m-%d}"):
        with pytest.raises(ConfigurationError, match="its bounds give one path"):
            files_source(spark, hours(6, 7), f"{tmp_path}/{hourly}/*", format="lines")
    with pytest.raises(ConfigurationError, match="cannot be formatted"):
        files_source(spark, DAY, f"{tmp_path}/{{day}}", format="lines")
    with pytest.raises(ConfigurationError, match="avro"):
        files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}", format="avro")
    with pytest.raises(ConfigurationError, match="cannot be listed"):
        files_source(spark, DAY, "nothing://{start:%Y-%m-%d}/x", format="lines")


def test_an_interval_without_files_is_refused_unless_that_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    _part(tmp_path, "late.json")
    with pytest.raises(ConfigurationError, match=r"no file at .*/2013-01-01\.json"):
        files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}.json", format="lines")
    with pytest.raises(ConfigurationError, match=r"no file at .* changed within the interval[^$]*allow_empty=True"):
        files_source(spark, DAY, f"{tmp_path}/*.json", format="lines", modified=True)
    allowed = files_source(spark, DAY, f"{tmp_path}/*.json", format="lines", modified=True, allow_empty=True)
    assert not allowed.files


def test_files_are_held_to_the_plan_of_an_earlier_attempt() -> None:
    first, second = (PinnedFile(f"file:/{name}", 1, 5) for name in "ab")
    source = FilesSource(FileSet((first, second)), FileReadOptions("lines"))
    run, spark = Run("daily", DAY), cast(SparkSession, None)
    planned = Files(source, spark).plan(run).slices

    def follow(now: FilesSource, slices: Sequence[Mapping[str, Any]]) -> None:
        Files(now, spark).follow(Stage(run, 0, "", slices, (), {0: 0}), {})

    follow(source, planned)
    follow(FilesSource(FileSet(), source.options), ())
    with pytest.raises(ConfigurationError, match="file:/b is gone"):
        follow(replace(source, files=FileSet((first,))), planned)
    with pytest.raises(ConfigurationError, match="started with other slices"):
        follow(replace(source, options=FileReadOptions("parquet")), planned)
    with pytest.raises(ConfigurationError, match="started with other slices"):
        follow(source, [{"xxhash64": ["key string"], "of": 1}])
