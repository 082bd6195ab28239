"""The DAG that removes what this package has left of a group."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_uninstall import ConnectUninstallOperator, ConnectUninstallPlanOperator

uninstall_dag = ChangeDag(
    ConnectUninstallPlanOperator,
    ConnectUninstallOperator,
    dag_id="connect_uninstall",
    tags=("kafka-connect", "uninstall"),
)
