"""An approval is bound to the plan that was shown, and an answer given too fast is not lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.triggers import hitl as standard_trigger
from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred
from airflow.sdk.execution_time import task_runner

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.operators.approval import (
    ASKED_KEY,
    FIRST_LOOK,
    LAST_LOOK,
    RETRIES,
    PlanApprovalOperator,
    approval_body,
)
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.triggers.approval import ApprovalAnswerTrigger


class Requests:
    """Stands in for the channel to the API server, which exists in a running task only.

    It keeps the first text, as the API server does (``execution_api/routes/hitl.py``).
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.displayed: str | None = None

    def send(self, message: Any) -> Any:
        self.sent.append(message)
        self.displayed = self.displayed or message.body
        return SimpleNamespace(body=self.displayed)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    requests = Requests()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", requests, raising=False)
    return requests


def operator_for(plan: Plan, **kwargs: Any) -> PlanApprovalOperator:
    return PlanApprovalOperator(task_id="approve", plan=plan.to_dict(), reason="spring cleaning", **kwargs)


def answer(option: str = "Approve") -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime(2026, 1, 2, tzinfo=UTC),
        "responded_by_user": {"id": "1", "name": "ada"},
        "timedout": False,
    }


def ask(operator: PlanApprovalOperator, context: dict[str, Any]) -> None:
    with pytest.raises(TaskAwaitingInput):
        operator.execute(context)


def test_the_person_sees_hash_diff_stand_still_times_and_reason(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    ask(operator_for(plan), context)
    body = requests.sent[0].body
    assert plan.hash in body
    assert "+exactly.once.source.support=preparing" in body
    assert "about 15 s" in body
    assert "spring cleaning" in body
    assert requests.sent[0].options == ["Approve", "Reject"]


def test_no_answer_is_never_a_yes(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    ask(operator_for(plan, response_timeout=timedelta(hours=1)), context)
    assert requests.sent[0].defaults is None


def test_the_same_plan_shows_the_same_text(plan: Plan) -> None:
    assert approval_body(plan, "x") == approval_body(Plan.from_dict(plan.to_dict()), "x")


def test_an_approval_names_plan_and_person(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    operator = operator_for(plan)
    ask(operator, context)
    result = operator.execute_complete(context, answer())
    assert result == {"plan_hash": plan.hash, "approved_by": "ada", "approved_at": "2026-01-02T00:00:00+00:00"}


def test_a_rejection_fails_the_task_for_good(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    operator = operator_for(plan)
    ask(operator, context)
    with pytest.raises(AirflowFailException, match="rejected by ada: nothing is changed"):
        operator.execute_complete(context, answer("Reject"))


def test_an_answer_with_no_option_is_no_approval(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    operator = operator_for(plan)
    ask(operator, context)
    with pytest.raises(AirflowFailException, match="rejected"):
        operator.execute_complete(context, {**answer(), "chosen_options": []})


NO_ANSWER = {"error": "no answer in time", "error_type": "timeout"}


def test_an_answer_that_does_not_come_in_time_fails_the_task_for_good(
    requests: Requests, context: dict[str, Any], plan: Plan, store: Any
) -> None:
    operator = operator_for(plan, response_timeout=timedelta(hours=1))
    ask(operator, context)
    store.values[ASKED_KEY]["asked_at"] = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    with pytest.raises(AirflowFailException, match="not approved"):
        operator.execute_complete(context, NO_ANSWER)


def test_a_parked_task_is_looked_at_again_soon_since_an_answer_may_have_crossed_the_parking(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        operator_for(plan).execute(context)
    assert parked.value.timeout == FIRST_LOOK


def test_a_look_that_finds_no_answer_parks_the_task_again_for_longer_and_longer(
    requests: Requests, context: dict[str, Any], plan: Plan, store: Any
) -> None:
    operator = operator_for(plan)
    ask(operator, context)
    for stands, pause in ((5, FIRST_LOOK), (600, timedelta(seconds=600)), (86_400, LAST_LOOK)):
        store.values[ASKED_KEY]["asked_at"] = (datetime.now(UTC) - timedelta(seconds=stands)).isoformat()
        with pytest.raises(TaskAwaitingInput) as parked:
            operator.execute_complete(context, NO_ANSWER)
        assert abs(parked.value.timeout - pause) < timedelta(seconds=5)
    assert len(requests.sent) == 1, "asking again would wipe out an answer"


def test_a_look_never_comes_later_than_the_deadline_for_the_answer(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        operator_for(plan, response_timeout=timedelta(seconds=5)).execute(context)
    assert parked.value.timeout <= timedelta(seconds=5)


def test_the_next_try_does_not_ask_again_but_lets_a_trigger_read_the_answer(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    ask(operator_for(plan), context)
    context["task_instance"].try_number = 2  # what Airflow makes of an answer that came too fast
    with pytest.raises(TaskDeferred) as deferral:
        operator_for(plan).execute(context)
    assert len(requests.sent) == 1, "asking again would wipe out the answer"
    assert isinstance(deferral.value.trigger, ApprovalAnswerTrigger)
    assert deferral.value.trigger.delay_seconds >= 8
    assert deferral.value.method_name == "execute_complete"


def test_the_deadline_of_the_first_question_holds_for_the_next_try(
    requests: Requests, context: dict[str, Any], plan: Plan, store: Any
) -> None:
    ask(operator_for(plan, response_timeout=timedelta(hours=1)), context)
    with pytest.raises(TaskDeferred) as deferral:
        operator_for(plan, response_timeout=timedelta(hours=1)).execute(context)
    asked_at = datetime.fromisoformat(store.values[ASKED_KEY]["asked_at"])
    assert deferral.value.trigger.timeout_datetime == asked_at + timedelta(hours=1)


def test_a_cleared_task_asks_again(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    ask(operator_for(plan), context)
    context["dag_run"].clear_number = 1
    ask(operator_for(plan), context)
    assert len(requests.sent) == 2


def test_an_answer_to_another_plan_is_not_taken_over(
    requests: Requests, context: dict[str, Any], plan: Plan, make_plan: Any
) -> None:
    ask(operator_for(plan), context)
    other = make_plan(Mode.PREPARING, group_id="other")
    requests.displayed = None
    ask(operator_for(other), context)
    assert other.hash in requests.sent[-1].body


def test_it_refuses_to_ask_while_the_text_on_display_is_about_another_plan(
    requests: Requests, context: dict[str, Any], plan: Plan, make_plan: Any, store: Any
) -> None:
    ask(operator_for(plan), context)
    context["dag_run"].clear_number = 1
    with pytest.raises(AirflowFailException, match="Start a new run"):
        operator_for(make_plan(Mode.PREPARING, group_id="other")).execute(context)
    assert store.values[ASKED_KEY]["plan_hash"] == plan.hash


def test_an_approval_does_not_outlive_a_change_of_the_plan(
    requests: Requests, context: dict[str, Any], plan: Plan, make_plan: Any
) -> None:
    ask(operator_for(plan), context)
    with pytest.raises(AirflowFailException, match="the plan is now"):
        operator_for(make_plan(Mode.PREPARING, group_id="other")).execute_complete(context, answer())


def test_what_was_asked_is_noted_only_after_the_question_was_put(
    context: dict[str, Any], plan: Plan, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreachable:
        def send(self, message: Any) -> Any:
            raise ConnectionError("the API server is away")

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Unreachable(), raising=False)
    with pytest.raises(ConnectionError):
        operator_for(plan).execute(context)
    assert ASKED_KEY not in store.values, "an answer to an older question would be taken for one to this"


def test_the_note_does_not_expire(requests: Requests, context: dict[str, Any], plan: Plan, store: Any) -> None:
    ask(operator_for(plan), context)
    assert store.retentions[ASKED_KEY] is NEVER_EXPIRE


def test_there_are_tries_left_for_a_lost_answer_unless_the_user_wants_none(plan: Plan) -> None:
    assert operator_for(plan).retries == RETRIES
    assert operator_for(plan, retries=1).retries == 1


def test_a_plan_that_does_not_match_its_hash_is_not_put_to_anybody(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    forged = {**plan.to_dict(), "group_id": "other"}
    with pytest.raises(AirflowFailException, match="does not match its hash"):
        PlanApprovalOperator(task_id="approve", plan=forged).execute(context)
    assert not requests.sent


def trigger(delay_seconds: float = 0.0) -> ApprovalAnswerTrigger:
    return ApprovalAnswerTrigger(
        ti_id="018f0000-0000-7000-8000-000000000001",
        options=["Approve", "Reject"],
        params={},
        timeout_datetime=None,
        poke_interval=0.01,
        delay_seconds=delay_seconds,
    )


def test_the_trigger_survives_being_stored() -> None:
    path, kwargs = trigger(12.0).serialize()
    assert path == "airflow_eos_provider.triggers.approval.ApprovalAnswerTrigger"
    assert ApprovalAnswerTrigger(**kwargs).serialize() == (path, kwargs)


def test_the_trigger_looks_for_the_answer_only_after_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look(ti_id: Any) -> Any:  # the triggerer's channel to the API server, which only a triggerer has
        looks.append(1.0)
        return SimpleNamespace(
            response_received=True,
            chosen_options=["Approve"],
            params_input={},
            responded_at=datetime(2026, 1, 2, tzinfo=UTC),
            responded_by_user=SimpleNamespace(id="1", name="ada"),
        )

    monkeypatch.setattr(standard_trigger, "get_hitl_detail_content_detail", look)

    async def run() -> Any:
        waiting = asyncio.ensure_future(anext(trigger(0.3).run()))
        await asyncio.sleep(0.1)
        assert not looks
        assert not waiting.done()
        return await asyncio.wait_for(waiting, timeout=5)

    event = asyncio.run(run())
    assert event.payload["chosen_options"] == ["Approve"]
    assert event.payload["responded_by_user"] == {"id": "1", "name": "ada"}
