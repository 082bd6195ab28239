"""Interval runs written by Spark: the public names. The only room that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.spark.backfill import (
        IntervalOutcome as IntervalOutcome,
        require_all_complete as require_all_complete,
        write_intervals as write_intervals,
    )
    from airflow_eos_provider.interval.spark.write import write_interval as write_interval

__all__, __getattr__ = lazily(__name__, extra="spark")
