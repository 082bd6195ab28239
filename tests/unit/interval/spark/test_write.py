"""What cannot be written is refused in one sentence, before a broker is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.sources.source_files import FileReadOptions, FileSet
from airflow_eos_provider.interval.spark import slicing, write_interval
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN
from airflow_eos_provider.interval.spark.slicing import sliced
from airflow_eos_provider.interval.spark.spark_files import FilesSource
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
NOBODY = Pipeline("flights", "etl", KafkaSettings.of("127.0.0.1:1"), topic="flights")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(20).select(F.col("id").cast("string").alias("key"), F.lit("x").alias("value"))


@pytest.mark.parametrize(("returned", "named"), [(None, "None"), ([("k", "v")], "a list")])
def test_a_function_that_returns_no_dataframe_is_told_so(returned: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Expected a DataFrame to write, got {named}") as refused:
        write_interval(returned, NOBODY, DAY)
    assert "return" in str(refused.value)


@pytest.mark.parametrize("slices", [0, 10_001, 2**40])
def test_a_number_of_slices_that_no_plan_can_have_is_refused(frame: DataFrame, slices: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{slices} slices were requested(.|\n)*1 to 10000"):
        write_interval(frame, NOBODY, DAY, slices=slices)


def test_a_way_to_slice_that_does_not_exist_or_cannot_be_taken_is_refused(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"slices_by is 'files'"):
        write_interval(frame, NOBODY, DAY, slices_by="files")
    monkeypatch.setattr(slicing, "speculates", lambda spark: True)
    with pytest.raises(ConfigurationError, match=r"spark\.speculation is on, and partitions cannot"):
        write_interval(frame, NOBODY, DAY, slices_by="partitions")


def test_a_plan_without_a_partition_for_each_slice_is_an_error_before_it_runs(frame: DataFrame) -> None:
    work = slicing.PartitionRows(frame.repartition(2, "key"), True)
    work.check()
    stage = Stage(Run("flights", DAY), 0, "", ({},) * 3, ((0,), (1,), (2,)), {0: 0})
    work.count = stage.tasks
    with pytest.raises(EosError, match="in 2 partitions"):
        work.results(NOBODY, stage, False)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (["key"], "'value'"),
        (["value"], "'key'"),
        (["key", "1 as value"], "'value' is of type int"),
        (["key", "value", "1.5 as partition"], "'partition' is of type decimal"),
        (["key", "value", "array(1) as headers"], "'headers' is of type array<int>"),
    ],
)
def test_a_wrong_column_is_named(frame: DataFrame, columns: list[str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        write_interval(frame.selectExpr(*columns), NOBODY, DAY)


@pytest.mark.parametrize("name", ["value", "VALUE", "key"])
def test_two_columns_of_one_name_are_refused(frame: DataFrame, name: str) -> None:
    twice = frame.select("*", F.lit("y").alias(name))

    with pytest.raises(ConfigurationError, match=f"more than one column '{name.lower()}': key, value, {name}"):
        write_interval(twice, NOBODY, DAY)


@pytest.mark.parametrize("name", ["Key", "TOPIC", "Partition"])
def test_a_column_of_a_record_that_is_spelled_in_another_way_is_refused(spark: SparkSession, name: str) -> None:
    """Spark takes it for the record's own; it would be left out."""
    frame = spark.range(1).selectExpr("id", f"cast(id as string) as `{name}`", "cast(id as string) as value")
    with pytest.raises(ConfigurationError, match=f"a column '{name}', which Spark takes for '{name.lower()}'"):
        write_interval(frame, NOBODY, DAY, key="id")


def test_a_column_that_is_not_written_may_be_there_twice(frame: DataFrame) -> None:
    more = frame.select("*", F.lit(1).alias("note"), F.lit(2).alias("note"))

    assert sliced(more, ["key"], 4).columns == ["key", "value", SLICE_COLUMN]


def test_a_column_of_our_name_is_left_out_as_any_other(frame: DataFrame) -> None:
    """The slice is the hash's, whatever the frame has under that name; the column can even be the key."""
    wrong = frame.withColumn(SLICE_COLUMN, F.lit(99))

    expected = {row.key: row[SLICE_COLUMN] for row in sliced(frame, ["key"], 4).collect()}
    assert {row.key: row[SLICE_COLUMN] for row in sliced(wrong, ["key"], 4).collect()} == expected
    assert len({row[SLICE_COLUMN] for row in sliced(wrong, [SLICE_COLUMN], 4).collect()}) == 1


def test_rows_with_a_null_key_are_of_one_slice_in_every_attempt(frame: DataFrame) -> None:
    keyless = frame.withColumn("key", F.lit(None).cast("string"))

    assert len({row[SLICE_COLUMN] for row in sliced(keyless, ["key"], 7).collect()}) == 1


EARLY, AFTER = DAY.start, datetime(2013, 1, 3, tzinfo=UTC)
OPTIONS = FileReadOptions("lines")
FUTURE = Interval.parse("2013-01-01T00:00:00Z/2113-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("interval", "files", "how", "words"),
    [
        (FUTURE, None, {}, "had not ended"),
        (FUTURE, FilesSource(FileSet(), OPTIONS, listed_at=AFTER), {}, "had not ended"),
        (DAY, None, {"began_at": EARLY}, "had not ended at 2013-01-01T05:00:00Z"),
        (DAY, FilesSource(FileSet(), OPTIONS, listed_at=EARLY), {}, "had not ended at 2013-01-01T05:00:00Z"),
        (DAY, FilesSource(FileSet(), OPTIONS, listed_at=EARLY), {"began_at": AFTER}, "had not ended at 2013-01-01T05"),
        (DAY, None, {"began_at": datetime(2013, 1, 3)}, "without a time zone"),
        (
            DAY,
            FilesSource(FileSet(), OPTIONS),
            {"selects_by_bounds": True},
            "path of the files names the interval's start",
        ),
    ],
)
def test_an_input_that_cannot_have_all_rows_of_the_interval_is_refused(
    frame: DataFrame, interval: Interval, files: FilesSource | None, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        write_interval(files or frame, NOBODY, interval, **how)


@pytest.mark.parametrize("name", ["customer.id", "a`b", "a.`b`.c"])
def test_a_key_may_have_any_name(frame: DataFrame, name: str) -> None:
    renamed = frame.toDF(name, "value")

    expected = {row.key: row[SLICE_COLUMN] for row in sliced(frame, ["key"], 4).collect()}
    numbered = sliced(renamed.withColumn("key", F.col(f"`{name.replace('`', '``')}`")), [name], 4)
    assert {row.key: row[SLICE_COLUMN] for row in numbered.collect()} == expected


@pytest.mark.parametrize(
    ("column", "kind"),
    [("map(1, 2)", "map"), ("array(struct(map(1, 2)))", "map"), ("parse_json('{}')", "variant")],
)
def test_a_key_that_has_no_hash_is_refused(frame: DataFrame, column: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The key's column 'k' is or has a {kind}"):
        write_interval(frame.selectExpr("value", f"{column} as k"), NOBODY, DAY, key="k")
