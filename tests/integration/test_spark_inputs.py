"""The files behind a DataFrame are held to what they were when the interval was begun."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_eos_provider.demo.oracle import compare, drain, expected_from_values
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.spark import by_slice, register, write_interval
from airflow_eos_provider.interval.spark import pinned_inputs as pinned_inputs_module
from airflow_eos_provider.interval.spark.file_listing import FilesSource, files_source
from airflow_eos_provider.interval.spark.pinned_inputs import pinned_inputs
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.lab.lab import Lab

DAY = Interval(datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 5, tzinfo=UTC))


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="inputs", workers=0)


@pytest.fixture
def pipeline(lab: Lab) -> Pipeline:
    name = f"daily-{uuid.uuid4().hex[:8]}"
    lab.create_topic(name, 2)
    settings = KafkaSettings.of(lab.bootstrap_servers)
    return Pipeline(name=name, group_id="inputs", kafka=settings, topic=name, transaction_timeout_ms=30_000)


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
    comparison = compare(expected_from_values(values(), "the files"), drain(pipeline.kafka, str(pipeline.topic)))
    assert comparison.exactly_once, comparison


def test_a_file_that_changes_between_attempts_is_named(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    begin_and_fail(spark, folder, pipeline)
    file = folder / "part 1.json"
    content, times = file.read_bytes(), file.stat()
    file.write_bytes(content + b'{"line":99}\n')
    with pytest.raises(ConfigurationError, match=r"part 1\.json has changed"):
        write_interval(rows(spark, folder), pipeline, DAY)
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert write_interval(rows(spark, folder), pipeline, DAY).records == 20
    require_exactly_once(pipeline)


def test_a_file_that_comes_between_attempts_is_named(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    begin_and_fail(spark, folder, pipeline)
    (folder / "part 2.json").write_text('{"line":99}\n')
    with pytest.raises(ConfigurationError, match=r"part 2\.json, which was not there"):
        write_interval(rows(spark, folder), pipeline, DAY)
    (folder / "part 2.json").unlink()
    assert write_interval(rows(spark, folder), pipeline, DAY).records == 20
    require_exactly_once(pipeline)


def test_a_file_that_goes_between_attempts_is_named(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    begin_and_fail(spark, folder, pipeline)
    (folder / "part 0.json").unlink()
    with pytest.raises(ConfigurationError, match=r"part 0\.json is gone"):
        write_interval(rows(spark, folder), pipeline, DAY)


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
    monkeypatch.setattr(pinned_inputs_module, "MOST_FILES_IN_PLAN", 1)
    begin_and_fail(spark, folder, pipeline)
    (folder / "part 2.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="reads 3 files now, and not those"):
        write_interval(rows(spark, folder), pipeline, DAY)


@pytest.mark.variant("the same look by write() in this file")
def test_the_data_source_looks_as_well(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    begin_and_fail(spark, folder, pipeline)
    register(spark, pipeline)

    def write(slices: int = 2) -> None:
        frame = by_slice(rows(spark, folder), slices=slices)
        frame.write.option("pipeline", pipeline.name).option("interval", DAY.name).save()

    with pytest.raises(Exception, match="begun with other slices"):
        write(slices=3)
    times = (folder / "part 0.json").stat()
    os.utime(folder / "part 0.json", (1, 1))
    with pytest.raises(Exception, match=r"part 0\.json has changed"):
        write()
    os.utime(folder / "part 0.json", ns=(times.st_atime_ns, times.st_mtime_ns))
    write()
    require_exactly_once(pipeline)


def test_a_file_that_comes_between_attempts_of_a_files_source_is_named(
    spark: SparkSession, pipeline: Pipeline, folder: Path
) -> None:
    def source(**options: Any) -> FilesSource:
        return files_source(spark, DAY, f"{folder.parent}/day={{start:%Y-%m-%d}}*/*", format="lines", **options)

    def fail_on_the_second(batch: Any) -> Any:
        if batch.column("value")[0].as_py() == b'{"line":10}':
            raise ValueError("by design")
        return batch

    with pytest.raises(EosError, match="by design"):
        write_interval(source(convert=fail_on_the_second), pipeline, DAY, spark=spark, tasks=1)
    (folder / "part 2.json").write_text('{"line":99}\n')
    with pytest.raises(ConfigurationError, match=r"part 2\.json, which was not there"):
        write_interval(source(), pipeline, DAY, spark=spark)
    (folder / "part 2.json").unlink()
    assert write_interval(source(), pipeline, DAY, spark=spark).records == 20
    require_exactly_once(pipeline)


def test_rows_without_a_time_are_refused_or_left_out_and_counted(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    for day in ("2013-01-01", "2013-01-02"):
        (tmp_path / f"{day}.json").write_text(f'{{"at":"{day}T05:00:00"}}\n{{"at":null}}\n{{"at":"{day}T04:00:00"}}\n')

    def source(**options: Any) -> FilesSource:
        return files_source(spark, DAY, f"{tmp_path}/*.json", format="json", time_column="at", **options)

    with pytest.raises(ConfigurationError, match=r"1 of 3 rows of the source file .* have no 'at'"):
        write_interval(source(), pipeline, DAY, spark=spark)
    with Coordinator(pipeline, Run(pipeline.name, DAY)) as coordinator:
        coordinator.abandon()

    lines: list[str] = []
    done = write_interval(source(null_times="drop"), pipeline, DAY, spark=spark, report=lines.append)

    assert done.records == 2
    assert any("2 source rows have no time" in line for line in lines), lines


def test_files_that_a_filter_leaves_out_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).withColumn("day", F.col("id") % 2).write.partitionBy("day").parquet(str(tmp_path / "table"))
    pinned = pinned_inputs(spark.read.parquet(str(tmp_path / "table")).where("day = 1"))
    assert pinned["files"]
    assert all("day=1" in file["path"] for file in pinned["files"])


def test_a_frame_without_files_pins_nothing(spark: SparkSession) -> None:
    assert pinned_inputs(spark.range(3).toDF("value")) == {}


#: What the writer reads of Spark that no version of it promises; the upper bound of pyspark is for these.
INTERNALS: dict[str, Callable[[SparkSession, DataFrame], object]] = {
    "SparkSession._jvm": lambda spark, _: spark._jvm.org.apache.hadoop.fs.Path("/tmp").getName(),
    "SparkSession._jsparkSession.sessionState().newHadoopConf": lambda spark, _: (
        spark._jsparkSession.sessionState().newHadoopConf().size()
    ),
    "SparkContext._gateway": lambda spark, _: spark.sparkContext._gateway.jvm,
    "SparkContext.maxNumConcurrentTasks": lambda spark, _: spark.sparkContext._jsc.sc().maxNumConcurrentTasks(
        spark.sparkContext._jsc.sc().resourceProfileManager().defaultResourceProfile()
    ),
    "DataFrame._jdf.queryExecution().analyzed": lambda _, frame: frame._jdf.queryExecution().analyzed().nodeName(),
    "DataFrame._jdf.queryExecution().sparkPlan().collectLeaves": lambda _, frame: (
        frame._jdf.queryExecution().sparkPlan().collectLeaves().size()
    ),
    "SparkContext.conf": lambda spark, _: spark.sparkContext._jsc.sc().conf().get("spark.speculation", "false"),
    "LiveListenerBus.waitUntilEmpty": lambda spark, _: (
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000) or True
    ),
    "LiveListenerBus.metrics": lambda spark, _: (
        spark.sparkContext._jsc.sc().listenerBus().metrics().metricRegistry().getCounters().size()
    ),
    "SparkStatusTracker.getJobIdsForTag": lambda spark, _: (
        spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag("none") is not None
    ),
}


@pytest.mark.parametrize("internal", INTERNALS)
def test_an_internal_of_spark_is_there(spark: Any, internal: str) -> None:
    assert INTERNALS[internal](spark, spark.range(1)) is not None
