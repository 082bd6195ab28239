"""Airflow notifiers: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.notifications.drift import ConnectDriftNotifier as ConnectDriftNotifier
    from airflow_eos_provider.notifications.interval_late import IntervalLateNotifier as IntervalLateNotifier
    from airflow_eos_provider.notifications.roll import ConnectRollNotifier as ConnectRollNotifier

__all__, __getattr__ = lazily(__name__)
