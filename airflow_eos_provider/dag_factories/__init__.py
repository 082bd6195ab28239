"""DAGs as functions, so that whoever installs the wheel has them; a file in a DAG folder is a few lines."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.upgrade import upgrade_dag

__all__ = ["upgrade_dag"]
