"""What an interval run reads: sources whose slices are pinned before they are written. The public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.spark.file_listing import files_source

__all__ = ["files_source"]

__getattr__ = lazily(__name__, {"files_source": "airflow_eos_provider.interval.spark.file_listing"}, extra="spark")
