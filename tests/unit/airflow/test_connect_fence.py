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
from airflow_eos_provider.operators.shown_plan import MOST_LINES

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


def test_an_approver_sees_every_line() -> None:
    shown = approvable(PLAN.to_dict())
    assert "Fence 20 connectors of Kafka Connect group g?" in shown.question
    body = approval_body(shown, "zombies")
    assert PLAN.hash in body
    assert [line for line in PLAN.lines() if f"- `{line.strip()}`" not in body.splitlines()] == []
    assert len(PLAN.lines()) == 80
    assert "These are all its lines." in body


def test_of_a_plan_beyond_the_bound_an_approver_sees_how_much_is_not_shown_and_where_it_is() -> None:
    many = replace(PLAN, rounds=tuple(replace(ROUNDS[0], connector=f"c{n}") for n in range(1_000)))
    shown = approvable(many.to_dict())
    body = approval_body(shown, "zombies")
    assert [line.strip("-` ") for line in body.splitlines() if line.startswith("- `")] == [
        line.strip() for line in many.lines()[:MOST_LINES]
    ]
    assert "- and 3,700 more lines, **which are not shown here**" in body
    assert "These are 300 of its 4,000 lines; this task's log (tab Logs) has every one." in body
    assert shown.whole.splitlines() == many.lines()


def test_a_long_line_is_shown_in_full() -> None:
    why = "a round is pending: " + "x" * 1_000
    plan = replace(PLAN, rounds=(replace(ROUNDS[0], why=why),))
    assert f"- `c0: {why}`" in approval_body(approvable(plan.to_dict()), "zombies").splitlines()


def test_another_plan_than_the_approved_one_is_not_carried_out() -> None:
    approval = {"plan_hash": PLAN.hash}
    require_approved(approval, PLAN.hash)
    another = replace(PLAN, names=("c1",))
    operator = ConnectFenceOperator(task_id="fence", plan=another.to_dict(), approval=approval)
    with pytest.raises(AirflowFailException, match="not the one that was approved"):
        operator.execute({})
