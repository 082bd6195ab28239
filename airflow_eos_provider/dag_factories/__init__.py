"""DAGs as functions of the installed package, so that a file in a DAG folder is a few lines: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.public_names import lazily

if TYPE_CHECKING:
    from airflow_eos_provider.dag_factories.audit import audit_dag as audit_dag
    from airflow_eos_provider.dag_factories.changes import change_dags as change_dags
    from airflow_eos_provider.dag_factories.downgrade import downgrade_dag as downgrade_dag
    from airflow_eos_provider.dag_factories.intervals import interval_run_dag as interval_run_dag
    from airflow_eos_provider.dag_factories.upgrade import upgrade_dag as upgrade_dag

_PUBLIC, _named = lazily(__name__)
_CHANGES = {change.dag for change in CHANGES.values()}

__all__ = sorted({*_PUBLIC, *_CHANGES})


def __getattr__(name: str) -> Any:
    if name not in _CHANGES:
        return _named(name)
    from airflow_eos_provider.dag_factories.changes import FACTORIES

    return FACTORIES[name]
