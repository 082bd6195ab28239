"""The DAG that closes an unfinished roll or change."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_close import ConnectCloseOperator, ConnectClosePlanOperator

close_dag = ChangeDag(
    ConnectClosePlanOperator, ConnectCloseOperator, dag_id="connect_close", tags=("kafka-connect", "journal")
)
