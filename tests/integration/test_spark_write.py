"""Spark writes intervals into a real broker; what a reader of committed records gets is compared with the source."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.protocol.admission import OverlapError
from airflow_eos_provider.interval.protocol.input_check import InputChangedError
from airflow_eos_provider.interval.sources import files_source
from airflow_eos_provider.interval.spark import (
    require_all_complete,
    slicing,
    write_interval,
    write_intervals,
)
from airflow_eos_provider.interval.spark.reruns import StageWatch
from airflow_eos_provider.interval.topics.pins import TopicChangedError
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from tests.integration.interval_target import DAY, Driver, HeldFiles, Target, day, drivers, jobs, misplaced
from tests.lab.spark_class_data import spark_jvm_options
from tests.waiting import until


@pytest.fixture
def target(broker_lab: Lab) -> Target:
    return Target.make(broker_lab, "spark-tests", 4)


@pytest.fixture
def start_job(tmp_path: Path, spark_properties: dict[str, str]) -> Iterator[Callable[..., Driver]]:
    with drivers(tmp_path, spark_properties) as start:
        yield start


def test_the_jvm_maps_the_archive_of_sparks_classes(spark: SparkSession) -> None:
    archive = spark_jvm_options().partition("-XX:SharedArchiveFile=")[2]
    context: Any = spark.sparkContext
    assert archive
    assert archive in Path(f"/proc/{context._gateway.proc.pid}/maps").read_text()


# DataFrames


def test_a_dataframe_arrives_exactly_once_and_a_second_run_is_a_no_op(spark: SparkSession, target: Target) -> None:
    frame = jobs.numbered(spark, DAY)
    lines: list[str] = []
    done = write_interval(frame, target.pipeline, DAY, slices=5, tasks=2, report=lines.append)
    assert (done.records, done.slices, done.already) == (1000, 5, False)
    assert any("5 of 5 slices in 2 tasks" in line for line in lines)
    again = write_interval(frame, target.pipeline, DAY)
    assert again.already
    assert (again.records, again.digest) == (done.records, done.digest)
    target.require_exactly_once(jobs.numbered_values(DAY))


def test_a_run_tells_what_it_moved_and_where_its_seconds_went(spark: SparkSession, target: Target) -> None:
    frame = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    done = write_interval(frame, target.pipeline, DAY, slices=4, tasks=2)

    size = 2 * sum(len(str(number)) for number in range(1000))
    assert done.summary is not None
    assert (done.summary.transactions, done.summary.bytes) == (4, size)
    parts = {"read", "shuffle", "produce", "flush", "commit", "begin", "fence", "stage", "read_back"}
    assert parts == set(done.summary.seconds)
    assert sorted((task.task, task.slices, task.attempt) for task in done.tasks) == [(0, 2, 0), (1, 2, 0)]
    assert sum(task.bytes for task in done.tasks) == size
    assert all(set(task.seconds) == {"read", "produce", "flush", "commit"} for task in done.tasks)
    again = write_interval(frame, target.pipeline, DAY, slices=4, tasks=2)
    assert again.already
    assert again.summary == done.summary


def test_a_revision_writes_a_changed_source_anew(spark: SparkSession, target: Target) -> None:
    """The interval's own run stays complete with the rows that it had."""
    first = write_interval(jobs.numbered(spark, DAY, 20), target.pipeline, DAY, slices=2)
    changed = jobs.numbered(spark, day(7), 30)  # other rows
    with pytest.raises(RefusedError, match="Revision 3"):
        write_interval(changed, target.pipeline, DAY, revision=3)

    second = write_interval(changed, target.pipeline, DAY, slices=2, revision=2)

    assert (second.run.name, second.records, second.already) == (f"{first.run.name}#2", 30, False)
    for revision, done in ((1, first), (2, second)):
        again = write_interval(changed, target.pipeline, DAY, revision=revision)
        assert (again.already, again.records, again.digest) == (True, done.records, done.digest)
    target.require_exactly_once([*jobs.numbered_values(DAY, 20), *jobs.numbered_values(day(7), 30)])


def test_all_columns_of_a_record_are_written_and_null_keys_are_reported(spark: SparkSession, target: Target) -> None:
    assert target.pipeline.topic is not None
    Topics(target.pipeline.kafka).change(target.pipeline.topic, {"retention.ms": "-1"})
    Topics(target.pipeline.kafka).await_settings(target.pipeline.topic, {"retention.ms": "-1"})
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    headers = [("h", b"1"), ("h", None)]
    frame = spark.createDataFrame(
        [("a", b"\x00\xff", headers, target.pipeline.topic, 2, noon), (None, b"b", None, None, 3, noon)],
        "key string, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
        "timestamp timestamp",
    )
    lines: list[str] = []

    assert write_interval(frame, target.pipeline, DAY, slices=1, report=lines.append).records == 2

    records = read_to_end(target.pipeline.kafka, target.pipeline.topic).records
    record, keyless = sorted(records, key=lambda each: each.partition)
    assert (record.key, record.value, record.partition) == (b"a", b"\x00\xff", 2)
    assert record.timestamp_ms == int(noon.timestamp() * 1000)
    assert (keyless.key, keyless.value, keyless.partition) == (None, b"b", 3)
    assert _headers(target, 2) == headers
    assert any("1 of 2 records have a null key" in line for line in lines), lines


def test_rows_of_2013_are_refused_where_the_topic_keeps_a_week(spark: SparkSession, target: Target) -> None:
    frame = spark.range(4).selectExpr("string(id) as value", "timestamp'2013-01-01 12:00:00' as timestamp")

    with pytest.raises(ConfigurationError, match="The end of the interval 2013-01-01"):
        write_interval(frame, target.pipeline, DAY, key="value", slices=1)


def _headers(target: Target, partition: int) -> Any:
    """Those of a partition's first record."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(target.pipeline.kafka.confluent(group_id="x", isolation_level="read_committed"))
    try:
        consumer.assign([TopicPartition(str(target.pipeline.topic), partition, 0)])
        (record,) = consumer.consume(1, timeout=180)
        return record.headers()
    finally:
        consumer.close()


def test_an_interval_without_rows_completes_empty(spark: SparkSession, target: Target) -> None:
    """Spark leaves out partitions that it knows to be empty; their slices get their ledger records all the same."""
    empty = jobs.numbered(spark, DAY).where(F.lit(False))
    done = write_interval(empty, target.pipeline, DAY, slices=3)
    assert (done.records, done.slices, done.already) == (0, 3, False)


def test_slices_without_rows_complete(spark: SparkSession, target: Target) -> None:
    done = write_interval(jobs.numbered(spark, DAY, 3), target.pipeline, DAY, slices=16, tasks=3)
    assert (done.records, done.slices) == (3, 16)
    target.require_exactly_once(jobs.numbered_values(DAY, 3))


def test_a_row_in_another_tasks_partition_stops_the_run(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "to_tasks", lambda rows, column, count: rows.repartition(count))
    with pytest.raises(EosError, match="belongs to another task"):
        write_interval(jobs.numbered(spark, DAY), target.pipeline, DAY, slices=4)
    assert target.compare([]).records == 0


def test_a_run_that_was_begun_with_another_key_is_not_gone_on_with(spark: SparkSession, target: Target) -> None:
    frame = jobs.numbered(spark, DAY)
    with pytest.raises(ConfigurationError, match="partition 99"):
        write_interval(misplaced(frame, F.lit(True)), target.pipeline, DAY, slices=2)
    for other in ({"key": "value", "slices": 2}, {"slices_by": "partitions"}):
        with pytest.raises(ConfigurationError, match="started with other slices"):
            write_interval(frame, target.pipeline, DAY, **other)


# An input that is another one in the next attempt


def _keys_by_cte(spark: SparkSession) -> Any:
    return spark.sql(
        "with a as (select id, uuid() k from range(300)) select k as key, concat('line ', id) as value from a"
    )


def test_an_input_that_is_another_one_in_each_attempt_is_refused(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "refuse_unstable", lambda frame, key: None)  # whatever a plan can tell
    committed = target.fail_at_the_last_slice(_keys_by_cte(spark))

    with pytest.raises(
        InputChangedError, match=r"slice 0 is committed with \d+ records, digest \w+; the input now has"
    ):
        write_interval(_keys_by_cte(spark), target.pipeline, DAY)

    assert sorted(target.values()) == committed
    assert completion(target.pipeline, Run(target.pipeline.name, DAY)) is None


def test_rows_that_moved_vanished_or_came_are_refused_and_the_same_rows_complete(
    spark: SparkSession, target: Target
) -> None:
    frame = jobs.numbered(spark, DAY, 100)
    committed = target.fail_at_the_last_slice(frame)
    one_done = F.col("key") == F.lit(_key_in_slice(spark, 0))
    moved = F.when(one_done, F.lit(_key_in_slice(spark, 3))).otherwise(F.col("key"))
    for changed in (
        frame.withColumn("key", moved),
        frame.where(~one_done),
        frame.union(frame.where(one_done).withColumn("value", F.lit("new"))),
        frame.where(F.pmod(F.xxhash64("key"), F.lit(4)) != 1),  # a slice of which no row is left
    ):
        with pytest.raises(InputChangedError, match=r"slice [01] is committed with \d+ records"):
            write_interval(changed, target.pipeline, DAY)
        assert sorted(target.values()) == committed

    assert write_interval(frame, target.pipeline, DAY, tasks=2).records == 100
    target.require_exactly_once(jobs.numbered_values(DAY, 100))


def _key_in_slice(spark: SparkSession, number: int) -> str:
    keys = spark.range(100).selectExpr("cast(id as string) as key")
    return str(keys.where(F.pmod(F.xxhash64("key"), F.lit(4)) == number).first().key)


def test_the_rows_that_were_compared_are_those_that_are_written(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    """The source changes after the comparison, before the first task."""
    (tmp_path / "rows").write_text("".join(f"line {n}\n" for n in range(100)))
    frame = spark.read.text(str(tmp_path / "rows")).selectExpr("value as key", "value")
    target.fail_at_the_last_slice(frame)

    def change(line: str) -> None:
        if line.startswith("Spark writes"):
            (tmp_path / "rows").write_text("".join(f"other {n}\n" for n in range(100)))

    done = write_interval(frame, target.pipeline, DAY, pin_inputs=False, report=change)

    assert done.records == 100
    target.require_exactly_once(f"line {n}".encode() for n in range(100))


def test_rows_that_were_frozen_from_two_evaluations_are_compared_with_one_more(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark says that it has evaluated a part twice; tests/integration/test_spark_cluster.py loses an executor."""
    (tmp_path / "rows").write_text("".join(f"line {n}\n" for n in range(100)))
    frame = spark.read.text(str(tmp_path / "rows")).selectExpr("value as key", "value")
    target.fail_at_the_last_slice(frame)
    monkeypatch.setattr(StageWatch, "doubt", lambda watch: "Spark has run stage 1 again")

    def change(line: str) -> None:
        if line.startswith("Spark writes"):
            (tmp_path / "rows").write_text("".join(f"other {n}\n" for n in range(100)))

    with pytest.raises(InputChangedError, match="has changed within this attempt"):
        write_interval(frame, target.pipeline, DAY, pin_inputs=False, report=change)
    assert completion(target.pipeline, Run(target.pipeline.name, DAY)) is None


def test_a_file_of_a_files_source_that_comes_or_changes_between_attempts_is_named_even_if_it_looks_the_same(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    folder = tmp_path / "2013-01-01"
    lines = _write_lines(folder, 2, 10)
    place = f"{tmp_path}/{{start:%Y-%m-%d}}/*.json"
    first = files_source(spark, DAY, place, format="lines", convert=_fail_on_second_file)
    with pytest.raises(EosError, match="second file"):
        write_interval(first, target.pipeline, DAY, spark=spark, tasks=1)
    (folder / "part-2.json").write_text('{"line":99}\n')
    with pytest.raises(ConfigurationError, match=r"part-2\.json, which was not there"):
        write_interval(files_source(spark, DAY, place, format="lines"), target.pipeline, DAY, spark=spark)
    (folder / "part-2.json").unlink()
    file = folder / "part-0.json"
    content, seen = file.read_bytes(), file.stat()
    for changed, expectation in (
        (content + b'{"line":99}\n', pytest.raises(ConfigurationError, match=r"part-0\.json has changed")),
        (
            content.replace(b'":3}', b'":7}'),
            pytest.raises(InputChangedError, match="slice 0 is committed with 10 records"),
        ),
        (content, contextlib.nullcontext()),
    ):
        file.write_bytes(changed)
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        with expectation:
            write_interval(files_source(spark, DAY, place, format="lines"), target.pipeline, DAY, spark=spark)
    target.require_exactly_once(lines)


# A frame's own partitions


def counted(spark: SparkSession, rows: int = 1000) -> Any:
    """Rows whose number of partitions adaptive execution would choose."""
    value = "cast(id as string) as value"
    return spark.range(rows).groupBy("id").count().selectExpr("cast(id as string) as key", value).repartition("key")


def test_a_frames_partitions_are_its_slices_and_adaptive_execution_does_not_choose_them(
    spark: SparkSession, target: Target
) -> None:
    frame = counted(spark)
    wanted = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() < wanted
    done = write_interval(frame, target.pipeline, DAY, slices_by="partitions")
    assert (done.records, done.slices) == (1000, wanted)
    target.require_exactly_once(str(number).encode() for number in range(1000))
    assert write_interval(frame, target.pipeline, DAY, slices_by="partitions").already


def test_a_retry_of_partitions_proves_their_number_and_their_rows(spark: SparkSession, target: Target) -> None:
    frame = counted(spark).repartition(4, "key")
    last = F.pmod(F.hash("key"), F.lit(4)) == 3
    with pytest.raises(ConfigurationError, match="partition 99"):
        write_interval(misplaced(frame, last), target.pipeline, DAY, slices_by="partitions")
    assert target.values(), "a slice is committed"
    for other, message in (
        (frame.repartition(5, "key"), "has 5 partitions.*was started with 4"),
        (frame.repartition(4, "value", "key"), "has changed between attempts: slice"),
        (frame.where("key % 2 = 0"), "slice . is committed with"),
    ):
        with pytest.raises((ConfigurationError, InputChangedError), match=message):
            write_interval(other, target.pipeline, DAY, slices_by="partitions")
    assert write_interval(frame, target.pipeline, DAY, slices_by="partitions").records == 1000
    target.require_exactly_once(str(number).encode() for number in range(1000))


# What dies


@pytest.mark.parametrize("several", [False, True])
def test_the_tasks_of_a_session_in_this_process_end_with_whoever_waits_for_them(
    spark: SparkSession, target: Target, tmp_path: Path, several: bool
) -> None:
    """They would hold the session's cores else, for as long as their source holds them."""
    held = HeldFiles.make(tmp_path)

    def source_of(interval: Interval) -> Any:
        return jobs.held_files(spark, interval, **held.arguments)

    with held.given_up() as readers:
        if several:
            write_intervals(source_of, target.pipeline, [DAY], spark=spark)
        else:
            write_interval(source_of(DAY), target.pipeline, DAY, spark=spark)
    until(lambda: not any(map(psutil.pid_exists, readers)), "the end of the readers", seconds=240)
    held.go()
    assert write_interval(source_of(DAY), target.pipeline, DAY, spark=spark).records == len(held.lines)
    target.require_exactly_once(held.lines)


@pytest.mark.first
def test_a_worker_killed_behind_a_commit_is_followed_by_one_that_writes_its_other_slices(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, ship = tmp_path / "killed", slicing.shipped

    def shipped(entry: str, *arguments: Any) -> Any:
        run = ship(entry, *arguments)
        return _killed_behind_a_commit(run, mark) if entry == "write_partition" else run

    monkeypatch.setattr(slicing, "shipped", shipped)
    assert write_interval(jobs.numbered(spark, DAY), target.pipeline, DAY, slices=3, tasks=1).records == 1000
    assert mark.exists()
    target.require_exactly_once(jobs.numbered_values(DAY))


def _killed_behind_a_commit(run: Any, mark: Path) -> Any:
    def go(batches: Any) -> Any:
        import os
        import signal

        for report in run(batches):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield report

    return go


def test_a_killed_driver_is_followed_by_one_that_writes_the_rest(
    target: Target, start_job: Callable[..., Driver]
) -> None:
    rows = 200_000
    first = start_job(target, DAY, slices=4, tasks=2, arguments={"rows": rows})
    target.wait_for_open_transaction(Run(target.pipeline.name, DAY))
    first.kill()
    # With other parallelism; the slices are those that the run was begun with.
    code, reported = start_job(target, DAY, slices=3, tasks=4, arguments={"rows": rows}).wait()
    assert code == 0, reported
    assert (reported["records"], reported["slices"], reported["already"]) == (rows, 4, False)
    target.require_exactly_once(jobs.numbered_values(DAY, rows))


# Files


def test_files_are_slices(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    lines = _write_lines(tmp_path / "2013-01-01", 5, 200)
    source = files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}/*.json", format="lines")
    done = write_interval(source, target.pipeline, DAY, spark=spark, tasks=2)
    assert (done.records, done.slices) == (1000, 5)
    target.require_exactly_once(lines)


def test_files_are_filtered_by_time_and_become_json(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    days = spark.range(96).selectExpr("id", "timestamp_seconds(1357016400 + id * 3600) as at")  # from DAY.start on
    days.coalesce(1).write.parquet(str(tmp_path / "flights"))
    source = files_source(spark, day(1), str(tmp_path / "flights"), format="parquet", time_column="at")
    assert write_interval(source, target.pipeline, day(1), spark=spark).records == 24
    values = {json.loads(record)["id"] for record in target.values()}
    assert values == set(range(24, 48))


def _fail_on_second_file(batch: Any) -> Any:
    if batch.column("value")[0].as_py().startswith(b'{"line":1000'):
        raise ValueError("this is the second file")
    return batch


def test_a_worker_killed_within_a_file_costs_an_attempt_and_no_record(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    lines = _write_lines(tmp_path / "2013-01-01", 2, 1000)
    mark = tmp_path / "killed"

    def kill_once(batch: Any) -> Any:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    source = files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}/*", format="lines", convert=kill_once)
    assert write_interval(source, target.pipeline, DAY, spark=spark).records == 2000
    assert mark.exists()
    target.require_exactly_once(lines)


def _write_lines(folder: Path, files: int, lines: int) -> list[bytes]:
    folder.mkdir()
    written = []
    for file in range(files):
        content = [f'{{"line":{1000 * file + line}}}'.encode() for line in range(lines)]
        (folder / f"part-{file}.json").write_bytes(b"\n".join(content) + b"\n")
        written += content
    return written


# Parts of an interval

DAYS = [day(number) for number in range(3)]
WIDE = Interval(DAYS[0].start, DAYS[-1].end)


def folder_of(root: Path, interval: Interval) -> str:
    return f"{root}/day={interval.start:%Y-%m-%d}"


def values_of(days: list[Interval]) -> list[bytes]:
    return [value for each in days for value in jobs.numbered_values(each, 5)]


@pytest.fixture(scope="module")
def days_in_folders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Interval], Any]:
    """As the docs read a day: from the folder that its start names."""
    root = tmp_path_factory.mktemp("days")
    for each in DAYS:
        jobs.numbered(spark, each, 5).write.parquet(folder_of(root, each))
    return lambda interval: spark.read.parquet(folder_of(root, interval))


def test_days_from_folders_that_are_named_by_their_start_are_written_together(
    spark: SparkSession, target: Target, days_in_folders: Callable[[Interval], Any]
) -> None:
    outcomes = write_intervals(days_in_folders, target.pipeline, DAYS, spark=spark, slices=2, together=3)
    require_all_complete(outcomes)
    assert {outcome.completed.run.interval for outcome in outcomes if outcome.completed} == {WIDE}
    target.require_exactly_once(values_of(DAYS))
    assert write_interval(days_in_folders(DAYS[1]), target.pipeline, DAYS[1]).already, "it is complete as a part"


def test_functions_that_use_the_name_of_one_view_do_not_get_each_others_rows(
    spark: SparkSession, target: Target, days_in_folders: Callable[[Interval], Any]
) -> None:
    both = threading.Barrier(2)

    def by_view(interval: Interval) -> Any:
        days_in_folders(interval).createOrReplaceTempView("rows_of_the_day")
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.3)  # in vain: the functions are called one at a time
        return spark.table("rows_of_the_day")

    require_all_complete(write_intervals(by_view, target.pipeline, DAYS[:2], spark=spark, slices=1, at_once=2))
    target.require_exactly_once(values_of(DAYS[:2]))


@pytest.mark.parametrize("how", ["a function of one day", "before its end"])
def test_parts_of_a_whole_that_may_lack_their_rows_are_refused_one_by_one_and_together(
    spark: SparkSession, target: Target, days_in_folders: Callable[[Interval], Any], how: str
) -> None:
    """The frame of the whole has the first day's rows alone, as a path that names the start does."""
    known = {"selects_by_bounds": True, "allow_before_end": True, "began_at": DAY.start}
    known |= {} if how == "before its end" else {"selects_by_bounds": False, "began_at": WIDE.end}
    done = write_interval(days_in_folders(WIDE), target.pipeline, WIDE, slices=2, **known)
    assert (done.records, done.ended) == (5, False)

    for together in (1, 3):
        outcomes = write_intervals(days_in_folders, target.pipeline, DAYS, spark=spark, together=together)
        assert [type(outcome.error) for outcome in outcomes] == [OverlapError] * 3
        assert all("does not complete the intervals within it" in str(outcome.error) for outcome in outcomes)


def test_an_interval_whose_input_was_looked_up_after_its_end_by_both_bounds_completes_its_parts(
    spark: SparkSession, target: Target
) -> None:
    known = {"began_at": WIDE.end, "selects_by_bounds": True}
    assert write_interval(jobs.numbered(spark, DAY, 5), target.pipeline, WIDE, slices=2, **known).ended
    assert write_interval(jobs.numbered(spark, DAY, 5), target.pipeline, DAYS[2]).already


def test_complete_intervals_whose_records_are_in_another_topic_are_refused_also_many_at_once(
    spark: SparkSession, broker_lab: Lab, target: Target
) -> None:
    def rows(interval: Interval) -> Any:
        return jobs.numbered(spark, interval, 5)

    require_all_complete(write_intervals(rows, target.pipeline, DAYS[:2], spark=spark, slices=1, together=2))
    name = str(target.pipeline.topic)
    broker_lab.create_topic(f"{name}-other", 1)
    outcomes = write_intervals(rows, replace(target.pipeline, topic=f"{name}-other"), DAYS, spark=spark, slices=1)
    assert [type(outcome.error) for outcome in outcomes] == [TopicChangedError, TopicChangedError, type(None)]
