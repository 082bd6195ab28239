"""Interval runs written by Spark: the public names. The only room that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.spark.backfill import IntervalOutcome, require_all_complete, write_intervals
    from airflow_eos_provider.interval.spark.write import write_interval

__all__ = [
    "IntervalOutcome",
    "require_all_complete",
    "write_interval",
    "write_intervals",
]

_ROOM = "airflow_eos_provider.interval.spark"

__getattr__ = lazily(
    __name__,
    {
        "IntervalOutcome": f"{_ROOM}.backfill",
        "require_all_complete": f"{_ROOM}.backfill",
        "write_interval": f"{_ROOM}.write",
        "write_intervals": f"{_ROOM}.backfill",
    },
    extra="spark",
)
