"""The DAG of the way back: its steps, its approvals, its refusals."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from airflow_eos_provider.dag_factories import downgrade_dag
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.operators.approval import PlanApprovalOperator


def steps_of(dag: DAG) -> list[str]:
    return [task.task_id for task in dag.topological_sort()]


def test_by_default_it_goes_straight_to_disabled() -> None:
    assert steps_of(downgrade_dag(conn_id="c", dag_id="d")) == [
        "preflight",
        *("plan_disabled", "approve_disabled", "roll_disabled", "verify_disabled"),
    ]


def test_the_way_may_lead_through_preparing_with_an_approval_for_each_roll() -> None:
    dag = downgrade_dag(conn_id="c", dag_id="d", steps=("preparing", "disabled"))
    assert steps_of(dag) == [
        "preflight",
        *("plan_preparing", "approve_preparing", "roll_preparing", "verify_preparing"),
        *("plan_disabled", "approve_disabled", "roll_disabled", "verify_disabled"),
    ]
    assert (set(dag.params), dag.params["take_over"]) == ({"reason", "take_over"}, False)
    for mode in ("preparing", "disabled"):
        assert dag.get_task(f"roll_{mode}").take_over == "{{ params.take_over }}"
        assert dag.get_task(f"roll_{mode}").upstream_task_ids == {f"plan_{mode}", f"approve_{mode}"}
        approval = dag.get_task(f"approve_{mode}")
        assert isinstance(approval, PlanApprovalOperator)
        assert "exactly-once is given up" in approval.subject
        assert dag.get_task(f"plan_{mode}").downwards
    assert dag.get_task("plan_disabled").trigger_rule == "none_failed"
    assert dag.get_task("preflight").target == "preparing"


@pytest.mark.parametrize("steps", [(), ("enabled",), ("disabled", "preparing"), ("disabled", "disabled")])
def test_steps_that_do_not_lead_down_are_refused(steps: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="not a downgrade from enabled"):
        downgrade_dag(conn_id="c", dag_id="d", steps=steps)
