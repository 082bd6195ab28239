"""The operators hand plan and approval to the core, and turn its answers into what Airflow should do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.observability import stats

from airflow_eos_provider import errors
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.operators.rolling_upgrade import (
    ConnectPlanOperator,
    ConnectPreflightOperator,
    ConnectRollingUpgradeOperator,
    ConnectVerifyOperator,
    TaskStateCheckpoint,
)
from airflow_eos_provider.rollout import controller as core
from airflow_eos_provider.rollout.answer import failed
from airflow_eos_provider.rollout.plan.obstacles import Preflight
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from tests.unit.airflow.conftest import FakeController


def roll(plan: Plan, **kwargs: Any) -> ConnectRollingUpgradeOperator:
    return ConnectRollingUpgradeOperator(task_id="roll", conn_id="c", plan=plan.to_dict(), **kwargs)


def test_a_roll_applies_the_plan_and_returns_the_report(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    approval = {"plan_hash": plan.hash, "approved_by": "grace"}
    report = roll(plan, approval=approval, reason="audit").execute(context)
    assert report == {"rollout_id": "r1", "to": "preparing"}
    assert controller.applied == [plan]
    assert controller.made_with["reason"] == "audit"
    assert controller.made_with["actor"] == "airflow upgrade/manual, approved by grace"


def test_the_metrics_of_a_roll_arrive_at_a_statsd_server(
    controller: FakeController, context: dict[str, Any], plan: Plan, datagrams: Callable[[], list[str]]
) -> None:
    worker = {"worker": "w1", "seconds": 30.0, "task_downtime_seconds": 4.0, "predicted_seconds": 5.0}
    controller.reported = {"workers": [worker]}
    roll(plan).execute(context)
    assert [line for line in datagrams() if line.startswith("airflow.eos.")] == [
        "airflow.eos.roll.completed:1|c",
        "airflow.eos.roll.gate_wait:30000.000000|ms",
        "airflow.eos.roll.task_downtime:4000.000000|ms",
        "airflow.eos.roll.task_downtime_predicted:5000.000000|ms",
    ]


@pytest.mark.parametrize(("given", "meant"), [(False, False), (True, True), ("False", False), ("True", True)])
def test_a_roll_takes_over_only_if_it_is_asked_to(
    controller: FakeController, context: dict[str, Any], plan: Plan, given: bool | str, meant: bool
) -> None:
    """A template gives words, also where it means False."""
    roll(plan, take_over=given).execute(context)
    assert controller.calls == [("apply", meant)]


def test_a_roll_that_was_asked_to_stop_is_not_tried_again(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    controller.outcomes = [errors.StopRequestedError("The roll has stopped: ann asked for pause.")]
    with pytest.raises(AirflowFailException, match="ann asked for pause"):
        roll(plan).execute(context)


def test_a_roll_refuses_a_plan_that_was_not_the_approved_one(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    with pytest.raises(AirflowFailException, match="not the approved one"):
        roll(plan, approval={"plan_hash": "another"}).execute(context)
    assert not controller.applied


def test_progress_reaches_the_task_log_line_by_line(
    controller: FakeController, context: dict[str, Any], plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = roll(plan)
    lines: list[str] = []
    monkeypatch.setattr(operator.log, "info", lambda message, *arguments: lines.append(message % arguments))
    operator.execute(context)
    assert lines == ["w1:8083: gate passed"]


def test_a_killed_roll_is_asked_to_stop_and_not_interrupted(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    operator = roll(plan)
    asked: list[bool] = []

    def kill_in_the_middle() -> None:
        asked.append(controller.made_with["stop_requested"]())
        operator.on_kill()  # as Airflow's signal handler calls it
        asked.append(controller.made_with["stop_requested"]())

    controller.during_apply = kill_in_the_middle
    operator.execute(context)
    assert asked == [False, True]


def test_the_settings_of_the_dag_reach_the_controller(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    roll(plan, settings={"polls": 7}).execute(context)
    assert controller.made_with["settings"].polls == 7


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigurationError("x"),
        errors.RefusedError("x"),
        errors.PlanMovedError("x"),
        errors.GateFailedError("x"),
        errors.FencedError("x"),
    ],
)
def test_what_needs_a_person_is_not_retried(error: Exception) -> None:
    with pytest.raises(AirflowFailException), no_retry_where_pointless():
        raise error


@pytest.mark.parametrize(
    "error",
    [errors.LeaseHeldError("x"), errors.UnreachableError("x"), errors.RolloutPausedError("x"), OSError("x")],
)
def test_what_may_mend_itself_is_retried(error: Exception) -> None:
    with pytest.raises(type(error)), no_retry_where_pointless():
        raise error


def test_a_roll_has_retries_so_that_a_killed_process_is_resumed(plan: Plan) -> None:
    operator = roll(plan)
    assert operator.retries >= 2
    # A dead process whose death cannot be proven holds its lease for this long.
    lease = core.RolloutSettings().lease_seconds
    assert operator.retries * operator.retry_delay.total_seconds() > lease


def test_the_checkpoint_keeps_documents_with_their_schema_for_ever(store: Any) -> None:
    TaskStateCheckpoint(store).set("eos_rollout", {"rollout_id": "r1"})
    assert store.values["eos_rollout"] == {"schema": 1, "document": {"rollout_id": "r1"}}
    assert store.retentions["eos_rollout"] is NEVER_EXPIRE
    assert TaskStateCheckpoint(store).get("eos_rollout") == {"rollout_id": "r1"}


def test_a_checkpoint_of_another_schema_is_not_read(store: Any) -> None:
    store.values["eos_rollout"] = {"schema": 99, "document": {}}
    assert TaskStateCheckpoint(store).get("eos_rollout") is None
    assert TaskStateCheckpoint(store).get("missing") is None


#: Of each step: its target, whether it leads down, the next plan's target and current mode, and what it is planned for.
PLANNED = [
    ("preparing", False, Mode.PREPARING, "disabled", None),  # as the next step, so that it never leads back
    ("enabled", False, Mode.ENABLED, "preparing", Mode.ENABLED),
]
SKIPPED = [
    ("preparing", False, Mode.ENABLED, "preparing"),
    ("preparing", False, Mode.ENABLED, "enabled"),
    ("enabled", False, Mode.ENABLED, "enabled"),
    ("disabled", True, Mode.DISABLED, "disabled"),
    ("preparing", True, Mode.PREPARING, "disabled"),
]


def planning(target: str, *, downwards: bool = False) -> ConnectPlanOperator:
    return ConnectPlanOperator(task_id="plan", conn_id="c", target=target, downwards=downwards)


@pytest.mark.parametrize(("target", "downwards", "next_target", "current", "planned_for"), PLANNED)
def test_a_step_that_is_due_is_planned(
    controller: FakeController,
    context: dict[str, Any],
    make_plan: Any,
    target: str,
    downwards: bool,
    next_target: Mode,
    current: str,
    planned_for: Mode | None,
) -> None:
    controller.next_plan = make_plan(next_target, mode=current)
    assert planning(target, downwards=downwards).execute(context) == controller.next_plan.to_dict()
    assert controller.planned_for == [planned_for]


@pytest.mark.parametrize(("target", "downwards", "next_target", "current"), SKIPPED)
def test_a_step_that_the_cluster_has_behind_it_is_skipped(
    controller: FakeController,
    context: dict[str, Any],
    make_plan: Any,
    target: str,
    downwards: bool,
    next_target: Mode,
    current: str,
) -> None:
    controller.next_plan = make_plan(next_target, mode=current)
    with pytest.raises(AirflowSkipException, match=f"Nothing to do: .* run in {current}"):
        planning(target, downwards=downwards).execute(context)


def test_a_preflight_that_failed_fails_the_task_with_its_reason(
    controller: FakeController, context: dict[str, Any]
) -> None:
    controller.preflight_result = Preflight(Mode.PREPARING, (failed("roster", "w9 is not described", "add it"),))
    with pytest.raises(AirflowFailException, match="w9 is not described"):
        ConnectPreflightOperator(task_id="preflight", conn_id="c").execute(context)


def test_what_was_proven_is_returned(controller: FakeController, context: dict[str, Any]) -> None:
    for operator in (
        ConnectPreflightOperator(task_id="preflight", conn_id="c"),
        ConnectVerifyOperator(task_id="verify", conn_id="c", target="enabled"),
    ):
        assert operator.execute(context)["verdict"] == "pass"


def test_a_target_that_is_no_mode_fails_for_good(controller: FakeController, context: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="disabled, preparing or enabled"):
        planning("on").execute(context)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.GateFailedError("w1 did not come back."), "eos.roll.gate_failed"),
        (errors.RolloutPausedError("w1 is not seen."), "eos.roll.paused"),
        (errors.StopRequestedError("ann asked for pause."), "eos.roll.paused"),
    ],
)
def test_a_roll_that_stops_is_counted(
    controller: FakeController,
    context: dict[str, Any],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    error: errors.EosError,
    name: str,
) -> None:
    counted: list[tuple[str, int, dict[str, str]]] = []
    monkeypatch.setattr(stats, "incr", lambda name, value, *, tags: counted.append((name, value, tags)))
    controller.outcomes = [error]
    with pytest.raises((AirflowFailException, errors.EosError)):
        roll(plan).execute(context)
    assert counted == [(name, 1, {"group_id": "connect", "to": "preparing"})]
