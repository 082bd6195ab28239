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
    from airflow_eos_provider.operators.changes import (
        ChangeOperator as ChangeOperator,
        ChangePlanOperator as ChangePlanOperator,
        ConnectAclGrantOperator as ConnectAclGrantOperator,
        ConnectAclGrantPlanOperator as ConnectAclGrantPlanOperator,
        ConnectAclRevokeOperator as ConnectAclRevokeOperator,
        ConnectAclRevokePlanOperator as ConnectAclRevokePlanOperator,
        ConnectCloseOperator as ConnectCloseOperator,
        ConnectClosePlanOperator as ConnectClosePlanOperator,
        ConnectFenceOperator as ConnectFenceOperator,
        ConnectFencePlanOperator as ConnectFencePlanOperator,
        ConnectOffsetsAlterOperator as ConnectOffsetsAlterOperator,
        ConnectOffsetsAlterPlanOperator as ConnectOffsetsAlterPlanOperator,
        ConnectOffsetsDropOwnOperator as ConnectOffsetsDropOwnOperator,
        ConnectOffsetsDropOwnPlanOperator as ConnectOffsetsDropOwnPlanOperator,
        ConnectOffsetsMigrateOperator as ConnectOffsetsMigrateOperator,
        ConnectOffsetsMigratePlanOperator as ConnectOffsetsMigratePlanOperator,
        ConnectOffsetsPruneOperator as ConnectOffsetsPruneOperator,
        ConnectOffsetsPrunePlanOperator as ConnectOffsetsPrunePlanOperator,
        ConnectOffsetsResetOperator as ConnectOffsetsResetOperator,
        ConnectOffsetsResetPlanOperator as ConnectOffsetsResetPlanOperator,
        ConnectOffsetsRestoreOperator as ConnectOffsetsRestoreOperator,
        ConnectOffsetsRestorePlanOperator as ConnectOffsetsRestorePlanOperator,
        ConnectTopicsOperator as ConnectTopicsOperator,
        ConnectTopicsPlanOperator as ConnectTopicsPlanOperator,
        ConnectUninstallOperator as ConnectUninstallOperator,
        ConnectUninstallPlanOperator as ConnectUninstallPlanOperator,
        IntervalAbandonOperator as IntervalAbandonOperator,
        IntervalAbandonPlanOperator as IntervalAbandonPlanOperator,
        TransactionAbortOperator as TransactionAbortOperator,
        TransactionAbortPlanOperator as TransactionAbortPlanOperator,
    )
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
