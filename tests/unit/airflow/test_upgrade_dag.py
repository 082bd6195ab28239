"""The DAG that users get: its order, its trigger rules, its form."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.exceptions import ParamValidationError
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.dag_factories import (
    acl_grant_dag,
    audit_dag,
    downgrade_dag,
    interval_abandon_dag,
    interval_run_dag,
    offsets_reset_dag,
    upgrade_dag,
)
from airflow_eos_provider.notifications import ConnectDriftNotifier, ConnectRollNotifier
from airflow_eos_provider.operators.approval import ApprovedOperator, PlanApprovalOperator
from airflow_eos_provider.operators.run_conf import unknown_keys

DAGS = Path(__file__).parents[3] / "dags"


@pytest.fixture(scope="module")
def dag() -> DAG:
    return upgrade_dag(conn_id="cluster_7", dag_id="upgrade_7", pool="cluster_7_pool")


def test_the_dags_of_the_repository_load_and_explain_themselves_and_each_field_of_their_forms() -> None:
    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    names = [change.dag.removesuffix("_dag") for change in CHANGES.values() if not change.brokers_only]
    assert {f"connect_{name}" for name in names} < set(bag.dags), "each change of a Connect cluster has a DAG"
    for dag in bag.dags.values():
        assert (dag.doc_md or "").strip().startswith("### "), dag.dag_id
        assert dag.description, dag.dag_id
        for name in dag.params:
            field = dag.params.get_param(name)
            assert field.schema.get("title") not in (None, name), f"{dag.dag_id}: the form shows the bare name {name}"
            assert str(field.description).endswith("."), f"{dag.dag_id}: {name}"
            assert field.schema.get("type"), f"{dag.dag_id}: {name} is not checked"
            if field.schema["type"] in ("string", ["null", "string"]) and "enum" not in field.schema:
                says = str(field.description)
                assert any(word in says for word in ("such as", "as in", "{", "empty", "shown to the approver")), name


def test_the_two_rolls_come_in_the_order_of_kip_618_each_behind_an_approval(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == [
        *("preflight", "preflight_connectors"),
        *("plan_preparing", "approve_preparing", "roll_preparing", "verify_preparing"),
        *("plan_enabled", "approve_enabled", "roll_enabled", "verify_enabled"),
    ]


def test_nothing_is_rolled_without_plan_and_approval_of_the_same_step(dag: DAG) -> None:
    for mode in ("preparing", "enabled"):
        roll = dag.get_task(f"roll_{mode}")
        assert roll.upstream_task_ids == {f"plan_{mode}", f"approve_{mode}"}
        assert isinstance(dag.get_task(f"approve_{mode}"), PlanApprovalOperator)
        assert roll.plan.operator.task_id == f"plan_{mode}"
        assert roll.approval.operator.task_id == f"approve_{mode}"


def test_the_second_step_goes_on_behind_a_skipped_first_but_not_behind_a_failed_one(dag: DAG) -> None:
    assert dag.get_task("plan_enabled").trigger_rule == "none_failed"
    assert dag.get_task("verify_enabled").trigger_rule == "none_failed"
    for task_id in ("approve_preparing", "roll_preparing", "verify_preparing", "approve_enabled", "roll_enabled"):
        assert dag.get_task(task_id).trigger_rule == "all_success"


def test_one_run_at_a_time_in_the_pool_and_on_the_cluster_of_the_dag(dag: DAG) -> None:
    assert (dag.max_active_runs, dag.schedule, dag.catchup) == (1, None, False)
    assert {task.pool for task in dag.tasks} == {"cluster_7_pool"}
    assert {task.conn_id for task in dag.tasks if hasattr(task, "conn_id")} == {"cluster_7"}
    assert "cluster_7" in str(dag.doc_md)


def test_the_form_asks_for_a_reason_and_not_for_a_cluster(dag: DAG) -> None:
    assert set(dag.params) == {"reason", "take_over"}
    assert dag.params["take_over"] is False
    with pytest.raises(ParamValidationError):
        dag.params["reason"] = ""


@pytest.mark.parametrize("factory", [upgrade_dag, downgrade_dag])
def test_a_roll_that_stops_is_reported_by_the_notifiers_that_are_given(factory: Any) -> None:
    channel = ConnectDriftNotifier()
    rolls = [task for task in factory(dag_id="reported", notifiers=[channel]).tasks if task.task_id.startswith("roll_")]
    assert rolls
    for roll in rolls:
        for callbacks in (roll.on_failure_callback, roll.on_retry_callback):
            assert [(type(each), each.notifiers) for each in callbacks] == [(ConnectRollNotifier, (channel,))]


def test_who_may_approve_and_for_how_long_can_be_said() -> None:
    dag = upgrade_dag(
        dag_id="guarded",
        response_timeout=timedelta(hours=2),
        approval={"assigned_users": [{"id": "1", "name": "ada"}]},
    )
    for task_id in ("approve_preparing", "approve_enabled"):
        task = dag.get_task(task_id)
        assert task.response_timeout == timedelta(hours=2)
        assert task.assigned_users == [{"id": "1", "name": "ada"}]
        assert task.defaults is None


@pytest.mark.parametrize("factory", [upgrade_dag, downgrade_dag])
def test_two_persons_may_be_wanted(factory: Any) -> None:
    def approvals(dag: DAG) -> set[bool]:
        return {task.require_other_approver for task in dag.tasks if isinstance(task, PlanApprovalOperator)}

    assert approvals(factory(dag_id="two", require_other_approver=True)) == {True}
    assert approvals(factory(dag_id="one")) == {False}


FACTORIES: dict[str, Any] = {
    "upgrade": partial(upgrade_dag, dag_id="of_upgrade", notifiers=[ConnectDriftNotifier()]),
    "downgrade": partial(downgrade_dag, dag_id="of_downgrade"),
    "audit": partial(audit_dag, dag_id="of_audit"),
    "intervals": partial(interval_run_dag, pipeline="p", python_callable="module:function", dag_id="of_intervals"),
    "a change": partial(offsets_reset_dag, dag_id="of_offsets"),
    "a change without a lease": partial(acl_grant_dag, dag_id="of_grant"),
    "a change of brokers": partial(interval_abandon_dag, dag_id="of_abandoned"),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_default_args_reach_every_task_and_what_a_promise_needs_stays(name: str) -> None:
    def tell(context: Any) -> None: ...

    given = {"owner": "ada", "pool": "slow", "retries": 7, "retry_delay": timedelta(hours=1)}
    plain, dag = FACTORIES[name](), FACTORIES[name](default_args={**given, "on_failure_callback": tell})
    for task in dag.tasks:
        before = plain.get_task(task.task_id)
        own = before if isinstance(task, (ApprovedOperator, PlanApprovalOperator)) else SimpleNamespace(**given)
        assert (task.retries, task.retry_delay) == (own.retries, own.retry_delay)
        assert (task.owner, task.pool) == ("ada", "slow")
        reports = [type(each) for each in before.on_failure_callback]
        assert [type(each) for each in task.on_failure_callback] == [type(tell), *reports]


@pytest.mark.parametrize("name", FACTORIES)
def test_who_is_fenced_by_a_run_is_shown_to_whoever_approves_it(name: str) -> None:
    dag = FACTORIES[name]()
    approvals = [task for task in dag.tasks if isinstance(task, PlanApprovalOperator)]
    takes_over = "take_over" in dag.params
    for task in approvals:
        assert task.render_template(task.take_over, {"params": {"take_over": True}}) == (
            "True" if takes_over else False
        )
    assert approvals or not takes_over


@pytest.mark.parametrize("name", FACTORIES)
def test_the_first_task_refuses_a_key_that_no_parameter_has(name: str) -> None:
    dag = FACTORIES[name]()
    first = dag.topological_sort()[0]

    def start(conf: dict[str, Any]) -> None:
        first._pre_execute_hook({"dag": dag, "dag_run": SimpleNamespace(conf=conf)})

    start({})
    start(dict.fromkeys(dag.params))
    start({"openlineage": {}})  # Airflow's own
    with pytest.raises(AirflowFailException, match="Unknown in the run's conf: 'no_such'"):
        start({"no_such": 1})


def test_a_misspelt_key_names_the_closest() -> None:
    reported = unknown_keys(["resaon", "takeOver", "x\ny"], ["reason", "take_over"]) or ""
    assert "'resaon' (is 'reason' meant?)" in reported
    assert "'takeOver' (is 'take_over' meant?)" in reported
    assert reported.endswith("this DAG takes reason, take_over.")
    assert reported.isprintable()
    assert unknown_keys(["reason"], ["reason"]) is None
