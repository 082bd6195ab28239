"""What an interval run reads: sources whose slices are pinned before they are written. The public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.spark.kafka_source import kafka_source as kafka_source
    from airflow_eos_provider.interval.spark.spark_files import files_source as files_source

__all__, __getattr__ = lazily(__name__, extra="spark")
