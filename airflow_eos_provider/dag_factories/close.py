"""The DAGs that close an unfinished roll or change, and that remove what this package has left of a group."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_close import ConnectCloseOperator, ConnectClosePlanOperator
from airflow_eos_provider.operators.connect_uninstall import ConnectUninstallOperator, ConnectUninstallPlanOperator

close_dag = ChangeDag(
    ConnectClosePlanOperator, ConnectCloseOperator, dag_id="connect_close", tags=("kafka-connect", "journal")
)
uninstall_dag = ChangeDag(
    ConnectUninstallPlanOperator,
    ConnectUninstallOperator,
    dag_id="connect_uninstall",
    tags=("kafka-connect", "uninstall"),
)
