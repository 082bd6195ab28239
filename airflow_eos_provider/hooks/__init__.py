"""Airflow hooks: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook as KafkaConnectHook

__all__, __getattr__ = lazily(__name__)
