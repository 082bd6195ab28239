"""Airflow notifiers: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.notifications.drift import ConnectDriftNotifier
    from airflow_eos_provider.notifications.interval_late import IntervalLateNotifier
    from airflow_eos_provider.notifications.roll import ConnectRollNotifier

__all__ = [
    "ConnectDriftNotifier",
    "ConnectRollNotifier",
    "IntervalLateNotifier",
]

__getattr__ = lazily(
    __name__,
    {
        "ConnectDriftNotifier": f"{__name__}.drift",
        "ConnectRollNotifier": f"{__name__}.roll",
        "IntervalLateNotifier": f"{__name__}.interval_late",
    },
)
