"""What decides a row's slice must be the same in every attempt; a plan in which it is not is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark.plans.classic_plan import refuse_moving, refuse_unstable

Change = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    made = spark.range(10).select(F.col("id").cast("string").alias("key"), F.col("id").alias("amount"))
    made.createOrReplaceTempView("flights")
    return made


def _sql(query: str) -> Change:
    return lambda frame: frame.sparkSession.sql(query)


def _chance(value: Any) -> Any:
    return value


UNSTABLE: dict[str, Change] = {
    "rand(": lambda f: f.withColumn("key", F.rand()),
    "randn(": lambda f: f.withColumn("key", F.randn()),
    "uuid()": lambda f: f.withColumn("key", F.expr("uuid()")),
    "shuffle(": lambda f: f.withColumn("key", F.shuffle(F.array(F.col("amount"), F.lit(2)))),
    "monotonically_increasing_id()": lambda f: f.withColumn("key", F.monotonically_increasing_id()),
    "SPARK_PARTITION_ID()": lambda f: f.withColumn("key", F.spark_partition_id()),
    "current_timestamp()": lambda f: f.withColumn("key", F.current_timestamp()),
    "The rows of a slice depend on current_timestamp()": lambda f: f.withColumn("key", F.unix_timestamp()),
    "current_date()": lambda f: f.withColumn("key", F.current_date()),
    "now()": lambda f: f.withColumn("key", F.expr("now()")),
    "_chance(amount)": lambda f: f.withColumn("key", F.udf(_chance, "long").asNondeterministic()("amount")),
    "first(key)": lambda f: f.groupBy("amount").agg(F.first("key").alias("key")),
    "limit": lambda f: f.limit(3),
    "sample": lambda f: f.sample(0.5, seed=1),
    "dropDuplicates": lambda f: f.dropDuplicates(["amount"]),
    "localtimestamp()": lambda f: f.withColumn("key", F.localtimestamp()),
    "CAST('now' AS TIMESTAMP)": lambda f: f.withColumn("key", F.expr("cast('now' as timestamp)")),
    "CAST(concat(' to', 'DAY') AS DATE)": lambda f: f.withColumn("key", F.expr("cast(concat(' to', 'DAY') as date)")),
    "CAST(left('yesterday', 9) AS DATE)": lambda f: f.where("date'2013-01-01' < cast(left('yesterday', 9) as date)"),
    "CAST('tomorrow UTC' AS TIMESTAMP)": lambda f: f.withColumn("key", F.to_timestamp(F.lit("tomorrow UTC"))),
    "limit (or offset) over an order without key": lambda f: f.orderBy("amount").limit(3),
    "limit (or offset) without an order": lambda f: f.sortWithinPartitions("key").limit(3),
    "an RDD or a checkpoint": lambda f: f.rdd.toDF(),
}

HIDING_RDDS: dict[str, Change] = {
    "a local checkpoint": lambda f: f.localCheckpoint(),
    "a local checkpoint to come": lambda f: f.localCheckpoint(eager=False),
    "a text file read as an RDD": lambda f: (
        f.sparkSession.sparkContext.textFile(__file__).map(lambda x: (x,)).toDF("key string")
    ),
}

#: Where the chance does not stand in the key's own expression.
HIDDEN: dict[str, Change] = {
    "in a column that the key is made of": lambda f: f.withColumn("chance", F.rand()).withColumn(
        "key", F.concat("key", F.col("chance").cast("string"))
    ),
    "in a filter": lambda f: f.where(F.rand() < 0.5),
    "in one half of a union": lambda f: f.union(f.withColumn("key", F.rand())),
    "in an intersection": lambda f: f.select("key").intersect(f.select(F.rand().cast("string"))),
    "in a join's condition": lambda f: f.join(f.select(F.rand().alias("chance")), F.col("amount") < F.col("chance")),
    "in a subquery": _sql("select key from flights where exists (select 1 from flights b where rand() > 0.5)"),
    "in a CTE": _sql("with a as (select key id, rand() k from flights) select k as key, id as value from a"),
    "in a CTE of a CTE, used twice": _sql(
        "with a as (select key id, rand() k from flights), b as (select k l, id from a) "
        "select x.l as key from b x join a y on x.id = y.id"
    ),
    "in the filter of a CTE": _sql("with a as (select key from flights where rand() < 0.5) select key from a"),
    "in a CTE of a subquery": _sql(
        "with a as (select key id, rand() k from flights) "
        "select key from flights where exists (select 1 from a where a.k > 0.5)"
    ),
    "in a recursive CTE": _sql(
        "with recursive r(n) as (select 1D union all select n + rand() from r where n < 3) select n as key from r"
    ),
    "below a cache": lambda f: f.withColumn("key", F.rand()).cache(),
}

STABLE: dict[str, Change] = {
    "the frame as it is": lambda f: f,
    "chance in the value": lambda f: f.withColumn("value", F.rand()),
    "the clock in the timestamp": lambda f: f.withColumn("timestamp", F.current_timestamp()),
    "chance in the value of one half of a union": lambda f: f.union(f.withColumn("amount", F.rand())),
    "a list that is collected in any order, beside the key": lambda f: f.groupBy("key").agg(F.collect_list("amount")),
    "a limit of an order": lambda f: f.orderBy("key").limit(3),
    "a limit of an order that the key is made of": lambda f: f.orderBy("key").selectExpr("upper(key) as key").limit(3),
    "a limit whose last order is the key": lambda f: f.orderBy("amount", "key").limit(3),
    "a CTE": _sql("with a as (select key id, amount from flights) select id as key, amount as value from a"),
    "chance in the value of a CTE": _sql("with a as (select key, uuid() v from flights) select key, v as value from a"),
    "a recursive CTE": _sql(
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select n as key from r"
    ),
    "a cast of a constant": lambda f: f.where("date'2013-01-01' > cast('2012-12-31' as date)"),
    "a cast of a column": lambda f: f.where("cast(key as timestamp) is null"),
    "a list": lambda f: f.sparkSession.createDataFrame([("a", 1)], "key string, value int"),
    "a join": lambda f: f.join(f.select(F.col("key").alias("other")), F.col("key") == F.col("other")),
    "a window": lambda f: f.selectExpr("row_number() over (order by key) as key"),
    "an exploded array": lambda f: f.select(F.explode(F.array("key")).alias("key")),
    "a Python function": lambda f: f.withColumn("key", F.udf(_chance, "long")("amount")),
    "the name of the file": lambda f: f.withColumn("key", F.input_file_name()),
    "a distinct frame": lambda f: f.distinct(),
    "a repartitioned frame": lambda f: f.repartition(3),
    "a subquery": _sql("select key from flights where amount > (select max(amount) - 3 from flights)"),
}


@pytest.mark.parametrize("named", UNSTABLE)
def test_a_key_that_changes_with_the_attempt_is_refused_and_named(frame: DataFrame, named: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        refuse_unstable(UNSTABLE[named](frame), ["key"])
    assert named in refusal.value.found
    assert refusal.value.remedy


@pytest.mark.parametrize("kind", HIDING_RDDS)
def test_rows_of_unknown_origin_are_refused(frame: DataFrame, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="an RDD or a checkpoint") as refusal:
        refuse_unstable(HIDING_RDDS[kind](frame), ["key"])
    assert "read them from there" in str(refusal.value)


@pytest.mark.parametrize("place", HIDDEN)
def test_chance_is_found(frame: DataFrame, place: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rand\("):
        refuse_unstable(HIDDEN[place](frame), ["key"])


@pytest.mark.parametrize("kind", STABLE)
def test_what_is_the_same_in_every_attempt_is_accepted(frame: DataFrame, kind: str) -> None:
    refuse_unstable(STABLE[kind](frame), ["key"])


def test_only_the_keys_columns_count(frame: DataFrame) -> None:
    chance = frame.withColumn("chance", F.rand())
    refuse_unstable(chance, ["KEY"])  # Spark does not mind the case
    with pytest.raises(ConfigurationError):
        refuse_unstable(chance, ["key", "chance"])


#: What decides a row's partition, where a partition is a slice.
MOVING: dict[str, Change] = {
    "orderBy or repartitionByRange": lambda f: f.orderBy("key"),
    "orderBy": lambda f: f.repartitionByRange(3, "key").select("key"),
    "rand(": lambda f: f.repartition(3, F.rand()),
    "randn(": lambda f: f.withColumn("value", F.randn()),
    "uuid()": lambda f: f.withColumn("dropped", F.expr("uuid()")).repartition(3).drop("dropped"),
    "collect_list(": lambda f: f.groupBy("key").agg(F.collect_list("amount")),
}


@pytest.mark.parametrize("named", MOVING)
def test_a_partition_that_changes_with_the_attempt_is_refused_and_named(frame: DataFrame, named: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        refuse_moving(MOVING[named](frame))
    assert named in refusal.value.found


@pytest.mark.parametrize("by", [(3,), (3, "key"), ("amount",)])
def test_partitions_by_number_or_columns_are_accepted(frame: DataFrame, by: tuple[Any, ...]) -> None:
    refuse_moving(frame.repartition(*by).sortWithinPartitions("key").groupBy("key").count())


def test_a_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="stream"):
        refuse_unstable(spark.readStream.format("rate").load(), ["value"])
