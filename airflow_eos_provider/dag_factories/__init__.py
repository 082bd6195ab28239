"""DAGs as functions of the installed package, so that a file in a DAG folder is a few lines: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.dag_factories.audit import audit_dag
    from airflow_eos_provider.dag_factories.changes import (
        acl_grant_dag,
        acl_revoke_dag,
        close_dag,
        fence_dag,
        interval_abandon_dag,
        offsets_alter_dag,
        offsets_migrate_dag,
        offsets_prune_dag,
        offsets_reset_dag,
        offsets_restore_dag,
        topics_dag,
        transaction_abort_dag,
        uninstall_dag,
    )
    from airflow_eos_provider.dag_factories.downgrade import downgrade_dag
    from airflow_eos_provider.dag_factories.intervals import interval_run_dag
    from airflow_eos_provider.dag_factories.upgrade import upgrade_dag

__all__ = [
    "acl_grant_dag",
    "acl_revoke_dag",
    "audit_dag",
    "close_dag",
    "downgrade_dag",
    "fence_dag",
    "interval_abandon_dag",
    "interval_run_dag",
    "offsets_alter_dag",
    "offsets_migrate_dag",
    "offsets_prune_dag",
    "offsets_reset_dag",
    "offsets_restore_dag",
    "topics_dag",
    "transaction_abort_dag",
    "uninstall_dag",
    "upgrade_dag",
]

__getattr__ = lazily(
    __name__,
    {
        "acl_grant_dag": f"{__name__}.changes",
        "acl_revoke_dag": f"{__name__}.changes",
        "audit_dag": f"{__name__}.audit",
        "close_dag": f"{__name__}.changes",
        "downgrade_dag": f"{__name__}.downgrade",
        "fence_dag": f"{__name__}.changes",
        "interval_abandon_dag": f"{__name__}.changes",
        "interval_run_dag": f"{__name__}.intervals",
        "offsets_alter_dag": f"{__name__}.changes",
        "offsets_migrate_dag": f"{__name__}.changes",
        "offsets_prune_dag": f"{__name__}.changes",
        "offsets_reset_dag": f"{__name__}.changes",
        "offsets_restore_dag": f"{__name__}.changes",
        "topics_dag": f"{__name__}.changes",
        "transaction_abort_dag": f"{__name__}.changes",
        "uninstall_dag": f"{__name__}.changes",
        "upgrade_dag": f"{__name__}.upgrade",
    },
)
