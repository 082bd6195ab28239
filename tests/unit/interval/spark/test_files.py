"""Whole files as slices of a DataFrame: which plans are taken, how files are grouped, and where their rows arrive."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.sources.files import FileReadOptions, FileSet, PinnedFile, look_at
from airflow_eos_provider.interval.spark import slicing, write_interval
from airflow_eos_provider.interval.spark.executors.tasks import require_no_rows
from airflow_eos_provider.interval.spark.files import (
    FilesSource,
    files_source,
    find_files,
    pinned_files,
    require_narrow,
    require_still_pinned,
)
from airflow_eos_provider.interval.spark.slicing import FileRows, Files
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

# The files of a frame are listed and pinned here; how a task reads one: tests/unit/interval/sources/test_files.py.

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
PIPELINE = Pipeline("daily", "nobody", KafkaSettings.of("127.0.0.1:1"), topic="daily")

Change = Callable[[DataFrame], DataFrame]

#: Files with so many lines each, in a folder whose name a URI has to spell in another way.
LINES = (400, 3, 50, 50, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files") / "day=2013-01-01 & 100%20"
    place.mkdir()
    for number, lines in enumerate(LINES):
        (place / f"part {number}.json").write_text("".join(f'{{"file":{number},"line":{n}}}\n' for n in range(lines)))
    return place


@pytest.fixture(scope="module")
def frame(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.json(str(folder)).selectExpr("cast(line as string) key", "to_json(struct(*)) value", "file")


def _same(value: Any) -> Any:
    return value


def _view(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("lines_of_files")
    return frame.sparkSession.sql("select * from lines_of_files")


TAKEN: dict[str, Change] = {
    "as it is read": lambda f: f,
    "where": lambda f: f.where("file > 0"),
    "withColumn": lambda f: f.withColumn("value", F.concat("value", "key")),
    "explode": lambda f: f.select("key", F.explode(F.array("value", "value")).alias("value")),
    "an alias": lambda f: f.alias("lines").select("lines.value"),
    "a Python function": lambda f: f.withColumn("value", F.udf(_same)("value")),
    "the partition of the files": lambda f: f.where("day >= '2013-01-01'") if "day" in f.columns else f,
}

REFUSED: dict[str, Change] = {
    "step Aggregate": lambda f: f.groupBy("key").agg(F.max("value").alias("value")),
    "step Join": lambda f: f.join(f.select("key").distinct(), "key"),
    "step Union": lambda f: f.unionAll(f),
    "step GlobalLimit": lambda f: f.limit(3),
    "step Sample": lambda f: f.sample(0.5, seed=1),
    "step Sort": lambda f: f.orderBy("key"),
    "step RepartitionByExpression": lambda f: f.repartition("key"),
    "step Repartition": lambda f: f.coalesce(1),
    "step Deduplicate": lambda f: f.dropDuplicates(),
    "step MapInArrow": lambda f: f.mapInArrow(_same, f.schema),
    "step View": _view,
    "step Window": lambda f: f.withColumn("value", F.expr("string(row_number() over (order by key))")),
    "has a subquery": lambda f: f.where("file < (select max(id) from range(10))"),
    "rand(": lambda f: f.withColumn("value", F.rand().cast("string")),
    "monotonically_increasing_id()": lambda f: f.withColumn("n", F.monotonically_increasing_id()),
    "SPARK_PARTITION_ID()": lambda f: f.where(F.spark_partition_id() < 2),
    "input_file_block_start()": lambda f: f.withColumn("n", F.input_file_block_start()),
    "_metadata of its own": lambda f: f.withColumn("_METADATA", F.lit("x")),
    "current_timestamp()": lambda f: f.where("current_timestamp() > '2020-01-01'"),
    "begins with LocalRelation|begins with LogicalRDD": lambda f: f.sparkSession.createDataFrame(
        [("k", "v")], "key string, value string"
    ),
    "begins with Range": lambda f: f.sparkSession.range(3).selectExpr("string(id) value"),
}


@pytest.mark.parametrize("change", TAKEN.values(), ids=TAKEN.keys())
def test_steps_that_take_each_row_by_itself_are_taken(frame: DataFrame, change: Change) -> None:
    require_narrow(change(frame))


@pytest.mark.parametrize(("named", "change"), REFUSED.items(), ids=REFUSED.keys())
def test_any_other_step_is_refused_and_named(frame: DataFrame, named: str, change: Change) -> None:
    pattern = named.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ConfigurationError, match=f"(?i){pattern}"):
        require_narrow(change(frame))


def test_what_files_cannot_be_slices_of_is_said_before_anything_is_written(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"slices_by is 'file'"):
        write_interval(frame, PIPELINE, DAY, slices_by="file")
    with pytest.raises(ConfigurationError, match=r"pin_inputs=False is given"):
        write_interval(frame, PIPELINE, DAY, slices_by="files", pin_inputs=False)
    with pytest.raises(ConfigurationError, match="a step Sort"):
        write_interval(frame.orderBy("key"), PIPELINE, DAY, slices_by="files")
    monkeypatch.setattr(slicing, "speculates", lambda spark: True)
    for slices_by in ("files", "partitions"):
        with pytest.raises(ConfigurationError, match=rf"spark\.speculation is on, and {slices_by} cannot"):
            write_interval(frame, PIPELINE, DAY, slices_by=slices_by)


def test_groups_are_about_as_large_as_one_another_and_do_not_depend_on_the_order_of_a_listing() -> None:
    files = [PinnedFile(f"file:/f{n}", size, 1) for n, size in enumerate((0, 90, 10, 40, 50, 0, 30))]
    groups = FileSet.of(files).grouped(3)
    shuffled = random.Random(7).sample(files, len(files))
    assert groups == FileSet.of(shuffled).grouped(3)
    assert sorted(f.path for group in groups for f in group) == sorted(f.path for f in files)
    assert sorted(sum(f.size for f in group) for group in groups) == [60, 70, 90]
    assert len(FileSet.of(files).grouped(100)) == len(files)


def _stage(groups: FileRows, assignment: Sequence[Sequence[int]]) -> Stage:
    plan = groups.plan(Run("daily", DAY))
    return Stage(plan.run, 0, plan.hash, plan.slices, tuple(map(tuple, assignment)), {0: 0})


def _places(rows: DataFrame) -> dict[int, list[tuple[int | None, int, int]]]:
    """By partition the runs of rows in it: slice, file and how many."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        from itertools import groupby

        import pyarrow as pa
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        found = [
            (number, json.loads(value)["file"])
            for batch in batches
            for number, value in zip(batch["_eos_slice"].to_pylist(), batch["value"].to_pylist(), strict=True)
        ]
        runs = [(*place, len(list(rows))) for place, rows in groupby(found)]
        columns = list(zip(*runs, strict=True)) or [(), (), ()]
        arrays = [pa.array(column, pa.int64()) for column in ([context.partitionId()] * len(runs), *columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=["partition", "slice", "file", "count"])

    places: dict[int, list[tuple[int | None, int, int]]] = {}
    for row in rows.mapInArrow(look, "partition long, slice long, file long, count long").collect():
        places.setdefault(row.partition, []).append((row.slice, row.file, row["count"]))
    return places


def test_a_row_arrives_with_the_slice_of_its_file_in_the_partition_of_its_task(frame: DataFrame) -> None:
    spark = frame.sparkSession
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")  # the largest file in several pieces
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    try:
        groups = FileRows(frame, 4, True)
        assert [len(group) for group in groups.groups].count(2) == 1
        places = _places(groups.rows_by_task(_stage(groups, [[2], [], [0, 3]])))  # slice 1 is committed
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    number_of = {f"part {n}.json": n for n in range(len(LINES))}
    files = [[number_of[file.path.rsplit("/", 1)[1]] for file in group] for group in groups.groups]
    for partition, slices in ((0, [2]), (1, [0, 3])):
        runs = places.pop(partition)
        assert list(dict.fromkeys(number for number, _, _ in runs)) == slices
        found = {(number, file): 0 for number in slices for file in files[number]}
        for number, file, count in runs:
            assert number is not None
            found[(number, file)] += count
        assert found == {(number, file): LINES[file] for number, file in found}
    assert not places


def test_a_slice_opens_its_own_files_only_and_nothing_is_moved(frame: DataFrame) -> None:
    groups = FileRows(frame.where("file >= 0"), 3, True)
    for number, group in enumerate(groups.groups):
        plan = groups._branch(number)._jdf.queryExecution().sparkPlan()
        leaves = plan.collectLeaves()
        assert leaves.size() == 1
        assert len(leaves.apply(0).selectedPartitions().toPartitionArray()) == len(group)
    rows = groups.rows_by_task(_stage(groups, [[0], [1], [2]]))
    assert rows._jdf.queryExecution().toRdd().getNumPartitions() == 3
    assert "Exchange" not in rows._jdf.queryExecution().executedPlan().toString()


def test_a_plan_without_a_partition_for_each_task_is_an_error_before_it_runs(frame: DataFrame) -> None:
    groups = FileRows(frame, 3, True)
    stage = _stage(groups, [[0], [], [1, 2]])
    rows = groups.rows_by_task(stage)
    groups.require_layout(rows, stage)
    with pytest.raises(EosError, match="in 2 partitions"):
        groups.require_layout(rows, _stage(groups, [[0], [1], [2]]))
    none = frame.where("false")
    empty = FileRows(frame, 3, True)
    assert empty.groups
    empty.frame = none
    empty.require_layout(empty.rows_by_task(stage), stage)
    assert _places(empty.rows_by_task(stage)) == {}


def test_a_row_of_a_file_that_no_slice_has_is_behind_the_tasks_and_an_error(frame: DataFrame) -> None:
    groups = FileRows(frame, len(LINES), True)
    lost = groups.groups.pop()
    places = _places(groups.rows_by_task(_stage(groups, [[n] for n in range(len(LINES) - 1)])))
    (runs,) = [runs for partition, runs in places.items() if partition >= len(LINES) - 1]
    number = int(lost.files[0].path.rsplit("part ", 1)[1].removesuffix(".json"))
    assert runs == [(None, number, LINES[number])]
    require_no_rows([pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})])
    with pytest.raises(EosError, match="in no slice of the interval's plan"):
        require_no_rows([pa.RecordBatch.from_pydict({"value": [b"x"]})])


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
