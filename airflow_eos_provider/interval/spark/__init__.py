"""Interval runs written by Spark: the public names. The only room that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.spark.datasource import by_slice, register
    from airflow_eos_provider.interval.spark.write import write_interval

__all__ = ["by_slice", "register", "write_interval"]

_ROOM = "airflow_eos_provider.interval.spark"

__getattr__ = lazily(
    __name__,
    {"by_slice": f"{_ROOM}.datasource", "register": f"{_ROOM}.datasource", "write_interval": f"{_ROOM}.write"},
    extra="spark",
)
