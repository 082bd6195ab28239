"""Functions that read an interval from its sources, as docs/spark/sources.md shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.interval.sources import files_source, kafka_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_eos_provider.interval.interval import Interval
    from airflow_eos_provider.interval.spark.spark_files import FilesSource


def orders_of_json(spark: SparkSession, interval: Interval, folder: str) -> DataFrame:
    schema = "id string, zip string, amount decimal(12, 2), at timestamp"
    rows = spark.read.schema(schema).option("mode", "FAILFAST").json(f"{folder}/day={interval.start:%Y-%m-%d}")
    return rows.selectExpr("id as key", "to_json(struct(*), map('ignoreNullFields', 'false')) as value")


def orders_of_lines(spark: SparkSession, interval: Interval, folder: str) -> FilesSource:
    path = f"{folder}/day={{start:%Y-%m-%d}}/*.json"
    return files_source(spark, interval, path, format="lines", key="id", time_column="at")


def orders_of_table(spark: SparkSession, interval: Interval, url: str, login: dict[str, str]) -> DataFrame:
    orders = f"select id, amount from orders where at >= '{interval.start:%F %T}Z' and at < '{interval.end:%F %T}Z'"
    rows = spark.read.jdbc(
        url, f"({orders}) orders", column="id", lowerBound=0, upperBound=100, numPartitions=4, properties=login
    )
    return rows.selectExpr("cast(id as string) as key", "to_json(struct(*)) as value")


def clicks_of_offsets(
    spark: SparkSession, interval: Interval, servers: str, topic: str, first: dict[str, int], end: dict[str, int]
) -> DataFrame:
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: first}))
        .option("endingOffsets", json.dumps({topic: end}))
        .load()
    )
    return rows.selectExpr("concat_ws('/', topic, partition, offset) as place", "key", "value")


def clicks_of_times(spark: SparkSession, interval: Interval, servers: str, topic: str, **options: Any) -> DataFrame:
    rows = kafka_source(spark, interval, servers, topic, **options)
    return rows.selectExpr("concat_ws('/', topic, partition, offset) as place", "key", "value")


def orders_with_a_wrong_row(spark: SparkSession, interval: Interval, **source: Any) -> DataFrame:
    """One of them names a partition that there is not, so that an attempt fails."""
    return orders_of_table(spark, interval, **source).selectExpr("*", "if(key = '7', 99, null) as partition")
