"""A roll to ``enabled`` from its operators: preflight, plan, approval by another person, roll, verify.

``upgrade_dag`` makes a DAG like this one with both steps of an upgrade. Write it yourself if tasks of your own belong
between its steps. A roll that stops is reported by a notifier: pass it those of your chat or mail provider.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_eos_provider.notifications import ConnectRollNotifier
from airflow_eos_provider.operators import (
    ConnectPlanOperator,
    ConnectPreflightOperator,
    ConnectRollingUpgradeOperator,
    ConnectVerifyOperator,
    PlanApprovalOperator,
)

CONN_ID = "kafka_connect_default"

with DAG(
    dag_id="example_operators",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    description="Roll a prepared Kafka Connect cluster to enabled",
    doc_md="### Roll a prepared Kafka Connect cluster to `enabled`\n\nAnother person has to approve the plan.",
) as dag:
    preflight = ConnectPreflightOperator(task_id="preflight", target="enabled", conn_id=CONN_ID)
    plan = ConnectPlanOperator(task_id="plan", target="enabled", conn_id=CONN_ID)
    approve = PlanApprovalOperator(task_id="approve", plan=plan.output, require_other_approver=True)
    roll = ConnectRollingUpgradeOperator(
        task_id="roll",
        plan=plan.output,
        approval=approve.output,
        conn_id=CONN_ID,
        # For example notifiers=[SlackNotifier(text="{{ eos_message }}")].
        on_failure_callback=[ConnectRollNotifier(notifiers=[])],
    )
    verify = ConnectVerifyOperator(task_id="verify", target="enabled", conn_id=CONN_ID)
    preflight >> plan >> approve >> roll >> verify
