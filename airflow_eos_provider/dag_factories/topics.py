"""The DAG of a group's internal topics."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_topics import ConnectTopicsOperator, ConnectTopicsPlanOperator

topics_dag = ChangeDag(
    ConnectTopicsPlanOperator, ConnectTopicsOperator, dag_id="connect_topics", tags=("kafka-connect", "topics")
)
