"""Airflow operators: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.operators.approval import PlanApprovalOperator as PlanApprovalOperator
    from airflow_eos_provider.operators.audit import (
        ConnectDriftAuditOperator as ConnectDriftAuditOperator,
        ConnectTransactionsAuditOperator as ConnectTransactionsAuditOperator,
    )
    from airflow_eos_provider.operators.change_base import (
        ChangeOperator as ChangeOperator,
        ChangePlanOperator as ChangePlanOperator,
    )
    from airflow_eos_provider.operators.changes import *  # noqa: F403  # each of its classes
    from airflow_eos_provider.operators.connect_preflight import ConnectorFindingsOperator as ConnectorFindingsOperator
    from airflow_eos_provider.operators.interval_run import IntervalRunOperator as IntervalRunOperator
    from airflow_eos_provider.operators.offsets_backup import (
        ConnectOffsetsBackupOperator as ConnectOffsetsBackupOperator,
    )
    from airflow_eos_provider.operators.rolling_upgrade import (
        ConnectPlanOperator as ConnectPlanOperator,
        ConnectPreflightOperator as ConnectPreflightOperator,
        ConnectRollingUpgradeOperator as ConnectRollingUpgradeOperator,
        ConnectVerifyOperator as ConnectVerifyOperator,
    )

__all__, __getattr__ = lazily(__name__)
