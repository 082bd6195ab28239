"""Airflow triggers, which only read: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.triggers.approval import ApprovalAnswerTrigger
    from airflow_eos_provider.triggers.connect_drift import ConnectDriftTrigger
    from airflow_eos_provider.triggers.connect_transactions import ConnectTransactionsTrigger
    from airflow_eos_provider.triggers.gate import ConnectGateTrigger
    from airflow_eos_provider.triggers.interval_complete import IntervalCompleteTrigger

__all__ = [
    "ApprovalAnswerTrigger",
    "ConnectDriftTrigger",
    "ConnectGateTrigger",
    "ConnectTransactionsTrigger",
    "IntervalCompleteTrigger",
]

__getattr__ = lazily(
    __name__,
    {
        "ApprovalAnswerTrigger": f"{__name__}.approval",
        "ConnectDriftTrigger": f"{__name__}.connect_drift",
        "ConnectGateTrigger": f"{__name__}.gate",
        "ConnectTransactionsTrigger": f"{__name__}.connect_transactions",
        "IntervalCompleteTrigger": f"{__name__}.interval_complete",
    },
)
