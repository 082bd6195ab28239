"""The DAG of fencing rounds."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_fence import ConnectFenceOperator, ConnectFencePlanOperator

fence_dag = ChangeDag(
    ConnectFencePlanOperator, ConnectFenceOperator, dag_id="connect_fence", tags=("kafka-connect", "fencing")
)
