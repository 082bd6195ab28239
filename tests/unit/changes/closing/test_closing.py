"""What was left open, closed as it was shown, and only so. Real ones: tests/integration/test_kafka_connect_hook.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes import engine
from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.closing import close as closing
from airflow_eos_provider.changes.closing.change import CLOSE, CloseRequest
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import FencedError, LeaseHeldError, PlanMovedError, RefusedError
from airflow_eos_provider.journal.content import JournalContent, Unreadable
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    Lease,
    Owner,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.journal.stop_requests import Answer

CHANGE = ChangeRecord(
    "20260101-reset", "offsets reset", "c", {"hash": "h"}, RolloutState.PAUSED, 1.0, "write", ("stop",), actor="ada"
)
ROLLOUT = RolloutRecord("20260102-enabled", {"hash": "p"}, {}, RolloutState.FAILED, 1.0, "ada", "CHG-1", "w2 failed")
STEPS = {
    "w1:8083": Step("w1:8083", StepStatus.PASSED, 1.0),
    "w2:8083": Step("w2:8083", StepStatus.RESTARTED, 2.0, announced_at_ms=2_000),
}
OF_CHANGE = JournalContent(changes={CHANGE.change_id: CHANGE})
OF_ROLL = JournalContent(rollouts={ROLLOUT.rollout_id: ROLLOUT}, steps={ROLLOUT.rollout_id: STEPS})
LEASE = Lease(Owner.deferred_task("upgrade/run/roll"), ROLLOUT.rollout_id, "ada", "gate", 2_000.0)


class Journals:
    """Stands in for a group's journal, of which a broker would have to be caught in each of these states."""

    def __init__(self) -> None:
        self.content = JournalContent()
        self.after: JournalContent | Exception | None = None
        self.taken_over: bool | None = None
        self.ended: list[Any] = []
        self.closed = 0
        self.actor, self.reason = "", ""

    def acquire(self, *, take_over: bool) -> JournalContent:
        self.taken_over = take_over
        if isinstance(self.after, Exception):
            raise self.after
        return self.content if self.after is None else self.after

    def write_change(self, record: ChangeRecord, event: str) -> None:
        self.ended.append(record)

    def end(self, record: RolloutRecord) -> None:
        self.ended.append(record)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> Journals:
    found = Journals()

    def journal(*_: Any, actor: str, reason: str, report: Any) -> Journals:
        found.actor, found.reason = actor, reason
        return found

    monkeypatch.setattr(engine, "read_journal", lambda kafka, group_id: found.content)
    monkeypatch.setattr(engine, "Journal", journal)
    monkeypatch.setattr(closing, "read_journal", lambda kafka, group_id: found.content)
    monkeypatch.setattr(closing, "clock_of", lambda settings, group_id: SimpleNamespace(now=lambda: 1_000.0))
    return found


CLUSTER: Any = SimpleNamespace(group_id="g", worker=partial(ConnectCluster.worker, SimpleNamespace(workers=())))
SESSION: Any = SimpleNamespace(kafka=SimpleNamespace(settings=None), cluster=CLUSTER, rest=ConnectSession.rest)


@pytest.fixture
def shown(journals: Journals) -> Callable[..., Plan]:
    def show(content: JournalContent, which: str = "", *, take_over: bool = False) -> Plan:
        journals.content = content
        return engine.planned(CLOSE, SESSION, CloseRequest(which, take_over))

    return show


def close_it(plan: Plan, actor: str = "ada") -> dict[str, Any]:
    return engine.carry_out(CLOSE, SESSION, plan, actor=actor, reason="not wanted").to_dict()


def test_the_plan_says_how_far_it_came_and_what_is_half_done(shown: Callable[..., Plan]) -> None:
    of_roll, of_change = shown(OF_ROLL), shown(OF_CHANGE)
    assert of_roll.lines[-1] == "  w2:8083 now: it does not answer: The cluster description has no worker w2:8083."
    text = "\n".join(of_roll.lines)
    for words in ("rollout 20260102-enabled of group g: it is failed", "by ada: CHG-1", "w2 failed", "w2:8083 is half"):
        assert words in text
    text = "\n".join(of_change.lines)
    for words in ("change 20260101-reset (offsets reset c)", "finished steps: stop", "may not be finished: write"):
        assert words in text


@pytest.mark.parametrize(
    "now",
    [
        replace(OF_ROLL, steps={ROLLOUT.rollout_id: {**STEPS, "w2:8083": Step("w2:8083", StepStatus.PASSED, 3.0)}}),
        replace(OF_ROLL, rollouts={ROLLOUT.rollout_id: replace(ROLLOUT, state=RolloutState.RUNNING)}),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_what_has_gone_on_since_is_not_closed(
    journals: Journals, shown: Callable[..., Plan], now: JournalContent, late: bool
) -> None:
    plan = shown(OF_ROLL)
    setattr(journals, "after" if late else "content", now)  # late: between the look and the lease
    with pytest.raises(PlanMovedError):
        close_it(plan)
    assert journals.ended == []
    assert journals.closed == (1 if late else 0)


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_what_another_controller_has_had_since_is_not_closed(
    journals: Journals, shown: Callable[..., Plan], take_over: bool, late: bool
) -> None:
    """Its records are as they were: the other one has begun no step yet."""
    ended = replace(LEASE, lasts_seconds=500.0)
    left = replace(OF_ROLL, rollouts={ROLLOUT.rollout_id: replace(ROLLOUT, state=RolloutState.RUNNING)}, lease=ended)
    plan = shown(left, take_over=take_over)
    assert "the group was last held by the deferred task upgrade/run/roll for ada" in plan.lines[-2]
    taken_up = replace(left, lease=replace(ended, owner=Owner.deferred_task("upgrade/run/roll")))
    setattr(journals, "after" if late else "content", taken_up)
    with pytest.raises(PlanMovedError):
        close_it(plan)
    assert journals.ended == []


def test_what_was_closed_meanwhile_is_not_closed_again(journals: Journals, shown: Callable[..., Plan]) -> None:
    plan = shown(OF_CHANGE)
    closed = JournalContent(changes={CHANGE.change_id: replace(CHANGE, state=RolloutState.DONE)})
    journals.after = closed
    with pytest.raises(RefusedError, match="closed by another command"):
        close_it(plan)
    journals.content = closed
    with pytest.raises(PlanMovedError, match="is open"):
        close_it(plan)
    assert shown(closed).nothing == "No roll and no change of group g is open."
    assert journals.ended == []


def test_a_change_or_another_roll_that_is_carried_out_is_left_alone(shown: Callable[..., Plan]) -> None:
    of_change = replace(LEASE, rollout_id=CHANGE.change_id)
    of_another = replace(LEASE, rollout_id="20260103-preparing")
    for content in (replace(OF_CHANGE, lease=of_change), replace(OF_ROLL, lease=of_another)):
        with pytest.raises(LeaseHeldError, match="upgrade/run/roll"):
            shown(content)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, journals: Journals) -> Callable[[RolloutState], list[Request]]:
    """Stands in for the controller that a roll's request reaches; a real one: tests/integration/test_rollout_verbs.py.

    :returns: comes to this state when it is asked, and gives what it was asked.
    """

    def answer_by(state: RolloutState) -> list[Request]:
        asked = []

        def ask_to_stop(kafka: Any, group_id: str, wanted: Request, journal: Any) -> Answer:
            asked.append(wanted)
            record = replace(ROLLOUT, state=state)
            journals.content = replace(OF_ROLL, rollouts={ROLLOUT.rollout_id: record})
            return Answer(wanted.rollout_id, wanted.kind, state, answered=not state.is_open, half_done=("w2:8083",))

        monkeypatch.setattr(closing, "ask_to_stop", ask_to_stop)
        return asked

    return answer_by


CARRIED_OUT = replace(OF_ROLL, lease=LEASE)


def test_a_roll_that_is_carried_out_is_asked_to_stop_wherever_it_is_by_then(
    journals: Journals, shown: Callable[..., Plan], answers: Callable[[RolloutState], list[Request]]
) -> None:
    plan = shown(CARRIED_OUT)
    assert "upgrade/run/roll for ada" in plan.lines[-3]
    assert "continues until it is asked to stop" in plan.lines[-3]
    asked = answers(RolloutState.ABORTED)
    further = {**STEPS, "w2:8083": Step("w2:8083", StepStatus.PASSED, 3.0)}
    elsewhere = replace(LEASE, owner=Owner.deferred_task("upgrade/run/roll_enabled"))
    journals.content = replace(CARRIED_OUT, steps={ROLLOUT.rollout_id: further}, lease=elsewhere)
    closed = close_it(plan, "grace")
    (request,) = asked
    assert (request.kind, request.actor, request.reason) == (RequestKind.ABORT, "grace", "not wanted")
    assert closed == {"closed": ROLLOUT.rollout_id, "half_done": ["w2:8083"]}
    assert (journals.ended, journals.taken_over) == ([], None)  # its own controller has ended it


@pytest.mark.parametrize(
    ("state", "words"), [(RolloutState.RUNNING, "has not answered"), (RolloutState.DONE, "it came to its end before")]
)
def test_a_roll_that_does_not_stop_is_not_said_to_be_closed(
    journals: Journals,
    shown: Callable[..., Plan],
    answers: Callable[[RolloutState], list[Request]],
    state: RolloutState,
    words: str,
) -> None:
    plan = shown(CARRIED_OUT)
    answers(state)
    with pytest.raises(RefusedError, match=words):
        close_it(plan)
    assert journals.ended == []


def test_a_roll_that_nobody_carries_out_any_more_is_shown_again_before_it_is_closed(
    journals: Journals, shown: Callable[..., Plan], answers: Callable[[RolloutState], list[Request]]
) -> None:
    plan = shown(CARRIED_OUT)
    asked = answers(RolloutState.ABORTED)
    journals.content = OF_ROLL
    with pytest.raises(PlanMovedError):
        close_it(plan)
    assert (asked, journals.ended) == ([], [])


def test_a_controller_that_is_taken_over_from_is_named_and_fenced(
    journals: Journals, shown: Callable[..., Plan]
) -> None:
    plan = shown(CARRIED_OUT, take_over=True)
    assert "upgrade/run/roll for ada" in plan.lines[-2]
    assert "is fenced, though its lease still runs" in plan.lines[-2]
    other = replace(OF_ROLL, lease=replace(LEASE, owner=Owner.deferred_task("upgrade/run/roll")))
    for journals.content, journals.after in ((other, None), (CARRIED_OUT, other)):
        with pytest.raises(PlanMovedError):
            close_it(plan)  # another controller than the one that was shown
    assert journals.ended == []
    journals.after = None
    close_it(plan)
    assert journals.taken_over is True
    assert len(journals.ended) == 1


def test_nobody_is_fenced_where_nobody_was_shown(journals: Journals, shown: Callable[..., Plan]) -> None:
    plan = shown(OF_ROLL, take_over=True)
    journals.after = FencedError("another one came")
    with pytest.raises(FencedError):
        close_it(plan)
    assert journals.taken_over is False


def test_of_several_one_is_named(shown: Callable[..., Plan]) -> None:
    both = replace(OF_ROLL, changes=OF_CHANGE.changes)
    with pytest.raises(RefusedError, match="not clear which is meant: 20260101-reset, 20260102-enabled"):
        shown(both)
    with pytest.raises(RefusedError, match="no such name"):
        shown(both, "2025")
    assert shown(both, "20260102").about == ROLLOUT.rollout_id
    assert shown(both, "20260101").about == CHANGE.change_id


def test_what_another_version_has_written_is_not_closed(shown: Callable[..., Plan]) -> None:
    with pytest.raises(RefusedError, match="newer version"):
        shown(replace(OF_ROLL, unreadable={ROLLOUT.rollout_id: Unreadable("was written by a newer version")}))
