"""The DAG of fencing rounds: its form, and what an approver sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.dag_factories import fence_dag
from airflow_eos_provider.offsets.fencing.plan import ConnectorRound, FencePlan
from airflow_eos_provider.operators.approvable import approvable
from airflow_eos_provider.operators.approval import approval_body
from airflow_eos_provider.operators.approved import require_approved
from airflow_eos_provider.operators.connect_fence import ConnectFenceOperator, ConnectFencePlanOperator

ROUNDS = tuple(
    ConnectorRound(f"c{n}", "a round is pending", fence=(0, 1), restart=(0,), awaits_record=True) for n in range(20)
)
PLAN = FencePlan("g", "cluster", ROUNDS, pending_only=True)


@pytest.fixture(scope="module")
def dag() -> DAG:
    return fence_dag(conn_id="cluster_7", dag_id="fence_7")


def test_nothing_is_fenced_without_plan_and_approval(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "approve", "fence"]
    fence = dag.get_task("fence")
    assert isinstance(fence, ConnectFenceOperator)
    assert fence.conn_id == "cluster_7"
    assert fence.upstream_task_ids == {"plan", "approve"}
    assert fence.approval.operator.task_id == "approve"


def test_the_form_names_connectors_or_none(dag: DAG) -> None:
    assert set(dag.params) == {"connectors", "pending", "reason", "take_over"}
    dag.params.get_param("connectors").resolve(None)
    plan = dag.get_task("plan")
    assert plan.render_template(plan.connectors, {"params": {"connectors": None}}) == ""
    assert ConnectFencePlanOperator(task_id="plan", connectors=" a, b-1 ,")._names() == ["a", "b-1"]
    assert ConnectFencePlanOperator(task_id="plan")._names() == []


def test_an_approver_sees_some_lines_and_the_log_has_all() -> None:
    shown = approvable(PLAN.to_dict())
    assert "Fence 20 connectors of Kafka Connect group g?" in shown.question
    body = approval_body(shown, "zombies")
    assert PLAN.hash in body
    assert "c0: a round is pending" in body
    assert "more lines" in body
    assert len(body.splitlines()) < 30
    assert "c19: a round is pending" in shown.whole


def test_another_plan_than_the_approved_one_is_not_carried_out() -> None:
    approval = {"plan_hash": PLAN.hash}
    require_approved(approval, PLAN.hash)
    another = replace(PLAN, names=("c1",))
    operator = ConnectFenceOperator(task_id="fence", plan=another.to_dict(), approval=approval)
    with pytest.raises(AirflowFailException, match="not the one that was approved"):
        operator.execute({})
