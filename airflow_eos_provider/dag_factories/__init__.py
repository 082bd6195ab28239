"""DAGs as functions of the installed package, so that a file in a DAG folder is a few lines: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.dag_factories.audit import audit_dag as audit_dag
    from airflow_eos_provider.dag_factories.changes import (
        acl_grant_dag as acl_grant_dag,
        acl_revoke_dag as acl_revoke_dag,
        close_dag as close_dag,
        fence_dag as fence_dag,
        interval_abandon_dag as interval_abandon_dag,
        offsets_alter_dag as offsets_alter_dag,
        offsets_drop_own_dag as offsets_drop_own_dag,
        offsets_migrate_dag as offsets_migrate_dag,
        offsets_prune_dag as offsets_prune_dag,
        offsets_reset_dag as offsets_reset_dag,
        offsets_restore_dag as offsets_restore_dag,
        topics_dag as topics_dag,
        transaction_abort_dag as transaction_abort_dag,
        uninstall_dag as uninstall_dag,
    )
    from airflow_eos_provider.dag_factories.downgrade import downgrade_dag as downgrade_dag
    from airflow_eos_provider.dag_factories.intervals import interval_run_dag as interval_run_dag
    from airflow_eos_provider.dag_factories.upgrade import upgrade_dag as upgrade_dag

__all__, __getattr__ = lazily(__name__)
