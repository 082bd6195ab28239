"""The DAG of the way back: its steps, its approvals, its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.exceptions import ParamValidationError
from airflow.sdk import DAG

from airflow_eos_provider.dag_factories import downgrade_dag
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.operators.approval import PlanApprovalOperator

DAGS = Path(__file__).parents[3] / "dags"


def steps_of(dag: DAG) -> list[str]:
    return [task.task_id for task in dag.topological_sort()]


def test_the_dag_of_the_repository_loads() -> None:
    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    assert steps_of(bag.dags["connect_exactly_once_downgrade"]) == [
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
    for mode in ("preparing", "disabled"):
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


def test_the_form_asks_whether_a_hanging_controller_is_fenced_and_each_roll_is_told() -> None:
    dag = downgrade_dag(conn_id="c", dag_id="d", steps=("preparing", "disabled"))
    assert set(dag.params) == {"reason", "take_over"}
    assert dag.params["take_over"] is False
    for mode in ("preparing", "disabled"):
        assert dag.get_task(f"roll_{mode}").take_over == "{{ params.take_over }}"


def test_nobody_goes_back_without_a_reason() -> None:
    params = downgrade_dag(conn_id="c", dag_id="d").params
    with pytest.raises(ParamValidationError):
        params["reason"] = ""
