"""Airflow hooks: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

__all__ = [
    "KafkaConnectHook",
]

__getattr__ = lazily(
    __name__,
    {
        "KafkaConnectHook": f"{__name__}.kafka_connect",
    },
)
