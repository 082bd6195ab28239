"""Airflow sensors: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.sensors.connect_drift import ConnectDriftSensor as ConnectDriftSensor
    from airflow_eos_provider.sensors.connect_transactions import ConnectTransactionsSensor as ConnectTransactionsSensor
    from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor as IntervalCompleteSensor

__all__, __getattr__ = lazily(__name__)
