"""The DAG that ends a hanging transaction."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.transaction_abort import TransactionAbortOperator, TransactionAbortPlanOperator

transaction_abort_dag = ChangeDag(
    TransactionAbortPlanOperator,
    TransactionAbortOperator,
    dag_id="connect_transaction_abort",
    tags=("kafka-connect", "transactions"),
)
