"""DAGs as functions of the installed package, so that a file in a DAG folder is a few lines."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.audit import audit_dag
from airflow_eos_provider.dag_factories.close import close_dag, uninstall_dag
from airflow_eos_provider.dag_factories.downgrade import downgrade_dag
from airflow_eos_provider.dag_factories.fence import fence_dag
from airflow_eos_provider.dag_factories.interval_abandon import interval_abandon_dag
from airflow_eos_provider.dag_factories.offsets import (
    offsets_alter_dag,
    offsets_migrate_dag,
    offsets_prune_dag,
    offsets_reset_dag,
    offsets_restore_dag,
)
from airflow_eos_provider.dag_factories.rights import acl_grant_dag, acl_revoke_dag
from airflow_eos_provider.dag_factories.topics import topics_dag
from airflow_eos_provider.dag_factories.transactions import transaction_abort_dag
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


def __getattr__(name: str) -> object:
    """Interval runs need the Spark provider, an extra; the upgrade does not, so it must not fail for want of it."""
    if name == "interval_run_dag":
        from airflow_eos_provider.dag_factories.intervals import interval_run_dag

        return interval_run_dag
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
