"""An approval is bound to the plan that was shown, and an answer given too fast is not lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.triggers import hitl as standard_trigger
from airflow.sdk import DAG, NEVER_EXPIRE, TriggerRule
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped, TaskAwaitingInput, TaskDeferred
from airflow.sdk.execution_time import task_runner
from markdown_it import MarkdownIt

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.operators.approval import (
    ASKED_KEY,
    FIRST_LOOK,
    LAST_LOOK,
    RETRIES,
    PlanApprovalOperator,
    approvable,
    approval_body,
    of_roll,
)
from airflow_eos_provider.rollout.plan.roll_plan import Plan
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


@pytest.fixture
def many(plan: Plan) -> Plan:
    """The same for forty workers."""
    numbers = range(40)
    workers = [replace(plan.workers[0], worker_id=f"w{n}:8083", config=f"/etc/connect/w{n}") for n in numbers]
    downtime = [replace(plan.task_downtime[0], worker_id=f"w{n}:8083") for n in numbers]
    return replace(plan, workers=tuple(workers), task_downtime=tuple(downtime))


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


def test_the_person_sees_hash_diff_downtimes_and_reason(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    ask(operator_for(plan), context)
    body = requests.sent[0].body
    assert plan.hash in body
    assert "+exactly.once.source.support=preparing" in body
    assert "about 15 s" in body
    assert "spring cleaning" in body
    assert requests.sent[0].options == ["Approve", "Reject"]


#: The page has room for so many lines above its buttons at 1280 x 800; a blank one is the space between two paragraphs.
LINES_ABOVE_THE_BUTTONS = 16


def test_what_is_shown_above_the_buttons_does_not_grow_with_the_workers(many: Plan) -> None:
    body = approval_body(of_roll(many), "spring cleaning", "ada")
    assert len(many.workers) == 40
    assert len(body.splitlines()) <= LINES_ABOVE_THE_BUTTONS
    assert "40 of 40 workers" in body
    assert max(map(len, body.splitlines())) < 300


def test_the_log_has_the_whole_plan(
    requests: Requests, context: dict[str, Any], many: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(operator_for(many), context)
    assert many.markdown() in capsys.readouterr().out
    assert "this task's log" in requests.sent[0].body


def test_no_answer_is_never_a_yes(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    ask(operator_for(plan, response_timeout=timedelta(hours=1)), context)
    assert requests.sent[0].defaults is None


def test_the_same_plan_shows_the_same_text(plan: Plan) -> None:
    assert approval_body(of_roll(plan), "x") == approval_body(approvable(plan.to_dict()), "x")


def test_an_approval_names_plan_and_person(requests: Requests, context: dict[str, Any], plan: Plan) -> None:
    """Who has started the run may approve it, unless another person is wanted."""
    operator = operator_for(plan)
    ask(operator, context)
    result = operator.execute_complete(context, answer())
    assert result == {"plan_hash": plan.hash, "approved_by": "ada", "approved_at": "2026-01-02T00:00:00+00:00"}


def test_after_a_rejection_everything_is_skipped_whatever_its_trigger_rule(
    requests: Requests, context: dict[str, Any], plan: Plan
) -> None:
    with DAG("rolls"):
        operator = operator_for(plan)
        later = EmptyOperator(task_id="later", trigger_rule=TriggerRule.NONE_FAILED)
        operator >> EmptyOperator(task_id="next") >> later
    skipped: list[str] = []
    context["ti"].map_index, context["ti"].xcom_push = -1, lambda key, value: skipped.extend(value["skipped"])
    context["task"] = operator
    ask(operator, context)
    with pytest.raises(DownstreamTasksSkipped) as raised:
        operator.execute_complete(context, answer("Reject"))
    assert sorted(raised.value.tasks) == sorted(skipped) == ["later", "next"]


@pytest.mark.parametrize(("given", "chosen"), [({"fail_on_reject": True}, ["Reject"]), ({}, [])])
def test_a_rejection_fails_the_task_for_good_if_it_is_asked_to_and_no_option_is_no_approval(
    requests: Requests, context: dict[str, Any], plan: Plan, given: dict[str, Any], chosen: list[str]
) -> None:
    operator = operator_for(plan, **given)
    ask(operator, context)
    with pytest.raises(AirflowFailException, match="rejected by ada: nothing is changed"):
        operator.execute_complete(context, {**answer(), "chosen_options": chosen})


NO_ANSWER = {"error": "no answer in time", "error_type": "timeout"}


def test_an_answer_that_does_not_come_in_time_fails_the_task_for_good(
    requests: Requests, context: dict[str, Any], plan: Plan, store: Any
) -> None:
    operator = operator_for(plan, response_timeout=timedelta(hours=1))
    ask(operator, context)
    store.values[ASKED_KEY]["asked_at"] = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    with pytest.raises(AirflowFailException, match="not approved"):
        operator.execute_complete(context, NO_ANSWER)


@pytest.mark.parametrize(("deadline", "first"), [(None, FIRST_LOOK), (timedelta(seconds=5), timedelta(seconds=5))])
def test_a_parked_task_is_looked_at_again_soon_since_an_answer_may_have_crossed_the_parking(
    requests: Requests, context: dict[str, Any], plan: Plan, deadline: timedelta | None, first: timedelta
) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        operator_for(plan, response_timeout=deadline).execute(context)
    assert parked.value.timeout == first if deadline is None else parked.value.timeout <= first


def test_a_look_that_finds_no_answer_parks_the_task_again_for_longer_and_longer(
    requests: Requests, context: dict[str, Any], plan: Plan, store: Any
) -> None:
    operator = operator_for(plan)
    ask(operator, context)
    for stands, pause in ((5, FIRST_LOOK), (600, timedelta(seconds=600)), (86_400, LAST_LOOK)):
        store.values[ASKED_KEY]["asked_at"] = (datetime.now(UTC) - timedelta(seconds=stands)).isoformat()
        with pytest.raises(TaskAwaitingInput) as parked:
            operator.execute_complete(context, NO_ANSWER)
        assert pause <= parked.value.timeout < pause + timedelta(minutes=1)
    assert len(requests.sent) == 1, "asking again would wipe out an answer"


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


HOSTILE_REASON = (
    "harmless\n\n# The plan is safe\n\nPlan hash: `0000`\n\n[Approve here](http://evil) ![](http://evil/pixel.png) "
    "<img src=x> ``` ` \u202e\x1b[2J"
)


def test_a_reason_is_data_below_what_we_say(plan: Plan) -> None:
    body = approval_body(of_roll(plan), HOSTILE_REASON, "ada\n# boss")
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    blocks = [token.type for token in tokens]
    assert "heading_open" not in blocks
    assert "html_block" not in blocks
    inline = [child for token in tokens for child in token.children or []]
    assert {child.type for child in inline} == {"text", "code_inline", "strong_open", "strong_close"}
    last = [token for token in tokens if token.type == "inline"][-1]
    assert last.content.startswith("Reason given: ")
    assert [child.type for child in last.children or []] == ["text", "code_inline"]
    assert body.splitlines()[-1] == last.content
    shown = [line for line in body.splitlines() if line.startswith("Plan hash:")]
    assert shown == [f"Plan hash: `{plan.hash}`"]
    assert all(line.isprintable() for line in body.splitlines())


def test_a_reason_is_cut_and_a_name_of_the_cluster_is_data_too(make_plan: Any) -> None:
    plan = make_plan(Mode.PREPARING, group_id="g` **safe** [x](http://evil)\n# hi")
    body = approval_body(of_roll(plan), "x" * 10_000)
    assert len(body) < 3_000
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    assert not {"heading_open", "html_block"} & {token.type for token in tokens}
    assert not {"link_open", "image", "html_inline"} & {c.type for t in tokens for c in t.children or []}


def test_the_subject_is_one_line(requests: Requests, context: dict[str, Any], make_plan: Any) -> None:
    ask(operator_for(make_plan(Mode.PREPARING, group_id="g\n# hi\x1b[2J")), context)
    assert requests.sent[0].subject.isprintable()


class TestOtherApprover:
    """Whoever asks may not answer. Airflow says who has started a run and who has answered by the same names."""

    def approve(self, plan: Plan, context: dict[str, Any], user: str | None = "grace", **kwargs: Any) -> Any:
        operator = operator_for(plan, require_other_approver=True, **kwargs)
        ask(operator, context)
        given = {**answer(), "responded_by_user": None if user is None else {"id": "2", "name": user}}
        return operator.execute_complete(context, given)

    def test_another_person_may_approve(self, requests: Requests, context: dict[str, Any], plan: Plan) -> None:
        assert self.approve(plan, context)["approved_by"] == "grace"
        assert "Asked by: `ada`" in requests.sent[0].body

    @pytest.mark.parametrize("user", ["ada", "Ada "])
    def test_the_requester_may_not(self, requests: Requests, context: dict[str, Any], plan: Plan, user: str) -> None:
        with pytest.raises(AirflowFailException, match="has started this run, so another person has to approve"):
            self.approve(plan, context, user)

    def test_the_requester_may_reject(self, requests: Requests, context: dict[str, Any], plan: Plan) -> None:
        operator = operator_for(plan, require_other_approver=True, fail_on_reject=True)
        ask(operator, context)
        with pytest.raises(AirflowFailException, match="rejected by ada"):
            operator.execute_complete(context, answer("Reject"))

    def test_an_answer_of_an_unknown_person_does_not_count(
        self, requests: Requests, context: dict[str, Any], plan: Plan
    ) -> None:
        with pytest.raises(AirflowFailException, match="does not know who has approved"):
            self.approve(plan, context, None)

    @pytest.mark.parametrize("run_type", ["manual", "backfill", "asset_triggered", "operator_triggered"])
    def test_an_unknown_requester_is_refused_before_anybody_is_asked(
        self, requests: Requests, context: dict[str, Any], plan: Plan, run_type: str
    ) -> None:
        context["dag_run"].triggering_user_name = None
        context["dag_run"].run_type = run_type
        with pytest.raises(AirflowFailException, match="require_other_approver needs to know who has started this run"):
            operator_for(plan, require_other_approver=True).execute(context)
        assert not requests.sent

    def test_a_scheduled_run_has_no_requester_and_any_person_may_approve(
        self, requests: Requests, context: dict[str, Any], plan: Plan
    ) -> None:
        context["dag_run"].triggering_user_name = None
        context["dag_run"].run_type = DagRunType.SCHEDULED
        assert self.approve(plan, context, "ada")["approved_by"] == "ada"


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
        return await asyncio.wait_for(waiting, timeout=60)

    event = asyncio.run(run())
    assert event.payload["chosen_options"] == ["Approve"]
    assert event.payload["responded_by_user"] == {"id": "1", "name": "ada"}


def test_a_take_over_is_said_above_the_buttons(plan: Plan) -> None:
    assert "**Take over**: a controller that has the group is fenced" in approval_body(
        of_roll(plan), "x", take_over=True
    )
    assert "Take over" not in approval_body(of_roll(plan), "x")
