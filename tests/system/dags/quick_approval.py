"""DAGs with nothing but a plan, its approval and something after it; no cluster is behind them."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task

from airflow_eos_provider.dag_factories.dag_steps import REASON, run_params
from airflow_eos_provider.operators import PlanApprovalOperator
from airflow_eos_provider.operators.run_conf import refuse_unknown_conf

for dag_id, require_other_approver in (("quick_approval", False), ("approval_by_two", True)):
    with DAG(dag_id, schedule=None, catchup=False, params=run_params("test", "nothing happens")) as dag:

        @task(pre_execute=refuse_unknown_conf)
        def plan() -> dict:
            from airflow_eos_provider.connect.mode import Mode
            from airflow_eos_provider.rollout.plan.roll_plan import Plan

            return Plan(group_id="connect", kafka_cluster_id="none", target=Mode.PREPARING, workers=()).to_dict()

        approval = PlanApprovalOperator(
            task_id="approve", plan=plan(), reason=REASON, require_other_approver=require_other_approver
        )
        approval >> EmptyOperator(task_id="after")
    globals()[dag_id] = dag
