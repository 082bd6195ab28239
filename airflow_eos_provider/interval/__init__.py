"""Interval runs: batches that reach Kafka exactly once, interval by interval. The public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.interval.interval import (
        Interval as Interval,
        Run as Run,
    )
    from airflow_eos_provider.interval.pipeline import Pipeline as Pipeline
    from airflow_eos_provider.interval.verify import (
        verify_all as verify_all,
        verify_run as verify_run,
    )
    from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings as KafkaSettings

__all__, __getattr__ = lazily(__name__)
