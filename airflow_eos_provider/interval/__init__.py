"""Interval runs: batches that reach Kafka exactly once, interval by interval. The public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.interval import Interval, Run
    from airflow_eos_provider.interval.pipeline import Pipeline
    from airflow_eos_provider.interval.verify import verify_all, verify_run
    from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

__all__ = ["Interval", "KafkaSettings", "Pipeline", "Run", "verify_all", "verify_run"]

_ROOM = "airflow_eos_provider.interval"

__getattr__ = lazily(
    __name__,
    {
        "Interval": f"{_ROOM}.interval",
        "KafkaSettings": "airflow_eos_provider.kafka.settings.kafka_settings",
        "Pipeline": f"{_ROOM}.pipeline",
        "Run": f"{_ROOM}.interval",
        "verify_all": f"{_ROOM}.verify",
        "verify_run": f"{_ROOM}.verify",
    },
)
