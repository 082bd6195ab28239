"""A DAG with nothing but a plan, its approval and something after it; no cluster is behind it."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_eos_provider.operators.approval import PlanApprovalOperator

with DAG("quick_approval", schedule=None, catchup=False):

    @task
    def plan() -> dict:
        from airflow_eos_provider.connect.mode import Mode
        from airflow_eos_provider.rollout.plan import Plan

        return Plan(group_id="connect", kafka_cluster_id="none", target=Mode.PREPARING, workers=()).to_dict()

    PlanApprovalOperator(task_id="approve", plan=plan(), reason="test") >> EmptyOperator(task_id="after")
