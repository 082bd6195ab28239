"""The deferrable roll: what is handed to the triggerer, what the trigger does with it, and what comes back."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.sdk.module_loading import import_string

from airflow_eos_provider.dag_factories import downgrade_dag, upgrade_dag
from airflow_eos_provider.errors import ConfigurationError, FencedError, UnreachableError
from airflow_eos_provider.operators.rolling_upgrade import DEFERRAL_BACKSTOP, ConnectRollingUpgradeOperator
from airflow_eos_provider.rollout.act.handover import COME_BACK_SECONDS
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.triggers import gate as module
from airflow_eos_provider.triggers.gate import ConnectGateTrigger
from tests.unit.airflow.conftest import FakeController, event_of

TASK = "upgrade/manual/roll"


def wait_until(deadline: float | None = None) -> GateState:
    """A gate that is waited for; its deadline is ten minutes from now, unless given."""
    deadline = time.time() + 600.0 if deadline is None else deadline
    return GateState(
        rollout_id="r1",
        worker_id="w1:8083",
        restart_id=1.0,
        polls=3,
        hold_seconds=5.0,
        deadline=deadline,
        latest_deadline=deadline,
        tasks=("mirror/1",),
        config_topic="configs",
        look_at=time.time() + 60.0,
    )


# The operator


REPORT = {"rollout_id": "r1", "to": "preparing"}


def roll(plan: Plan, **kwargs: Any) -> ConnectRollingUpgradeOperator:
    return ConnectRollingUpgradeOperator(task_id="roll", conn_id="c", plan=plan.to_dict(), **kwargs)


def deferral(run: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        run()
    return deferred.value


@pytest.mark.parametrize(("deferrable", "method"), [(False, "apply"), (True, "advance")])
def test_a_roll_that_never_has_to_wait_is_not_deferred(
    controller: FakeController, context: dict[str, Any], plan: Plan, deferrable: bool, method: str
) -> None:
    assert roll(plan, deferrable=deferrable).execute(context) == REPORT
    assert controller.calls == [(method, False)]


def test_a_deferrable_roll_hands_its_gate_to_the_triggerer(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    wait = wait_until()
    controller.outcomes = [wait]
    operator = roll(plan, deferrable=True, take_over=True, settings={"poll_interval_seconds": 0.5})
    deferred = deferral(lambda: operator.execute(context))
    assert controller.calls == [("advance", True)]
    assert controller.made_with["task"] == TASK
    assert deferred.method_name == "resume"
    assert not deferred.kwargs  # a resume method gets context and event, nothing else
    path, stored = deferred.trigger.serialize()
    assert path == "airflow_eos_provider.triggers.gate.ConnectGateTrigger"
    assert stored == {"conn_id": "c", "task": TASK, "wait": wait.to_dict(), "poll_interval": 0.5}
    # Airflow's own limit comes after the gate's, so that the gate answers, and before the end of the lease.
    assert DEFERRAL_BACKSTOP.total_seconds() + operator.retry_delay.total_seconds() < COME_BACK_SECONDS
    left = wait.deadline - time.time()
    assert left < deferred.timeout.total_seconds() <= left + DEFERRAL_BACKSTOP.total_seconds() + 60


def test_the_gate_comes_back_as_it_was_seen_and_its_deadline_survives_the_next_deferral(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    seen = replace(wait_until(), failed_tasks_restarted=True)
    controller.outcomes = [seen]
    event = {"status": "look", "reason": "the gate's answer is pass", "wait": json.loads(json.dumps(seen.to_dict()))}
    deferred = deferral(lambda: roll(plan, deferrable=True, take_over=True).resume(context, event))
    # Taken over by force is only at the beginning: whoever took over from this task meanwhile is left alone.
    assert controller.calls == [("go_on", (seen, True))]
    assert deferred.trigger.serialize()[1]["wait"]["deadline"] == seen.deadline


def test_what_the_triggerer_cannot_look_at_is_waited_for_by_the_task(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    event = {"status": "error", "reason": "no cluster file here", "wait": wait_until().to_dict()}
    assert roll(plan, deferrable=True).resume(context, event) == REPORT
    assert controller.calls == [("go_on", (GateState.from_dict(event["wait"]), False))]


def test_a_resumed_roll_refuses_a_plan_that_was_not_the_approved_one(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    event = {"status": "look", "reason": "", "wait": wait_until().to_dict()}
    with pytest.raises(AirflowFailException, match="not the approved one"):
        roll(plan, deferrable=True, approval={"plan_hash": "another"}).resume(context, event)
    assert not controller.calls


def test_a_task_that_was_taken_over_is_not_tried_again(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    controller.outcomes = [FencedError("Another controller has taken over.")]
    event = {"status": "look", "reason": "", "wait": wait_until().to_dict()}
    with pytest.raises(AirflowFailException, match="taken over"):
        roll(plan, deferrable=True).resume(context, event)


def test_a_durable_roll_keeps_its_rollout_in_the_task_state_and_another_does_not(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    roll(plan).execute(context)
    assert controller.made_with["checkpoint"] is not None
    roll(plan, durable=False).execute(context)
    assert controller.made_with["checkpoint"] is None


def test_a_task_has_one_name_in_all_its_tries_and_another_for_each_map_index(
    controller: FakeController, context: dict[str, Any], plan: Plan
) -> None:
    operator, names = roll(plan), []
    for try_number, index in ((1, -1), (2, -1), (1, 0), (1, 1)):
        context["ti"].try_number, context["ti"].map_index = try_number, index
        operator.execute(context)
        names.append(controller.made_with["task"])
    assert names == [TASK, TASK, f"{TASK}[0]", f"{TASK}[1]"]


@pytest.mark.parametrize("factory", [upgrade_dag, downgrade_dag])
def test_the_factories_pass_on_whether_rolls_are_deferred(factory: Any) -> None:
    def rolls(dag: DAG) -> set[bool]:
        return {task.deferrable for task in dag.tasks if isinstance(task, ConnectRollingUpgradeOperator)}

    assert rolls(factory(dag_id="a")) == {False}
    assert rolls(factory(dag_id="b", deferrable=True)) == {True}


# The trigger


class Look:
    """Stands in for looks at a cluster: answers one by one, or raises."""

    def __init__(self, *answers: str | Exception | None, seconds: float = 0.0) -> None:
        self.answers = list(answers)
        self.seconds = seconds
        self.status_line = "10 of 11 checks pass"
        self.gate = replace(wait_until(), failed_tasks_restarted=True)
        self.threads: set[int] = set()

    def look(self) -> str | None:
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def trigger(**kwargs: Any) -> ConnectGateTrigger:
    return ConnectGateTrigger(
        **{"conn_id": "c", "task": TASK, "wait": wait_until().to_dict(), "poll_interval": 0.01, **kwargs}
    )


def looks(monkeypatch: pytest.MonkeyPatch, look: Look | Exception) -> None:
    def gate_look(conn_id: str, wait: Any, task: str) -> Any:
        assert (conn_id, task) == ("c", TASK)
        if isinstance(look, Exception):
            raise look
        return look

    monkeypatch.setattr(module, "_gate_look", gate_look)


def test_the_trigger_can_be_rebuilt_from_what_it_stores() -> None:
    """As after the death of a triggerer: nothing but these values is left, and the deadline is among them."""
    wait = wait_until()
    path, stored = trigger(wait=wait.to_dict()).serialize()
    again = import_string(path)(**json.loads(json.dumps(stored)))
    assert again.serialize() == (path, stored)
    assert GateState.from_dict(again.wait).deadline == wait.deadline


def test_the_trigger_looks_until_a_process_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks(monkeypatch, Look(None, None, "the gate's answer is pass"))
    event = event_of(trigger())
    assert (event["status"], event["reason"]) == ("look", "the gate's answer is pass")
    assert GateState.from_dict(event["wait"]).failed_tasks_restarted
    json.dumps(event)


@pytest.mark.parametrize(
    "error", [ConfigurationError("no cluster file here"), UnreachableError("no host"), KeyError(1)]
)
def test_where_nothing_can_be_seen_the_task_resumes(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    for failing in (error, Look(error)):
        looks(monkeypatch, failing)
        event = event_of(trigger())
        assert event["status"] == "error"
        assert str(error) in event["reason"]
        assert GateState.from_dict(event["wait"])


def test_a_look_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_TIMEOUT_SECONDS", 0.1)
    released = threading.Event()

    class Stuck(Look):
        def look(self) -> str | None:
            released.wait(60)
            return super().look()

    looks(monkeypatch, Stuck("too late"))

    async def given_up() -> Any:
        try:
            return (await anext(aiter(trigger().run()))).payload
        finally:
            released.set()

    event = asyncio.run(asyncio.wait_for(given_up(), 120))
    assert event["status"] == "error"
    assert "took longer" in event["reason"]


def test_a_slow_look_holds_up_no_other_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    class Slow(Look):
        def look(self) -> str | None:
            answer = super().look()
            assert released.wait(60), "nothing else runs beside it"
            return answer

    look = Slow("now")
    looks(monkeypatch, look)

    async def beside() -> Any:
        waiting = asyncio.create_task(anext(aiter(trigger().run())))
        while not look.threads:
            await asyncio.sleep(0.01)
        released.set()  # by another task of the same event loop, in the midst of the look
        return (await waiting).payload

    assert asyncio.run(asyncio.wait_for(beside(), 120))["reason"] == "now"
    assert threading.get_ident() not in look.threads
