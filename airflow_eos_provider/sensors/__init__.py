"""Airflow sensors: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.sensors.connect_drift import ConnectDriftSensor
    from airflow_eos_provider.sensors.connect_transactions import ConnectTransactionsSensor
    from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor

__all__ = [
    "ConnectDriftSensor",
    "ConnectTransactionsSensor",
    "IntervalCompleteSensor",
]

__getattr__ = lazily(
    __name__,
    {
        "ConnectDriftSensor": f"{__name__}.connect_drift",
        "ConnectTransactionsSensor": f"{__name__}.connect_transactions",
        "IntervalCompleteSensor": f"{__name__}.interval_complete",
    },
)
