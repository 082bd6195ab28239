"""How any change is planned and carried out: the plan under the lease, taking up, and what a killed caller has done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes import engine
from airflow_eos_provider.changes.change import MOST_LINES, Change, Done, Plan, option, read_request
from airflow_eos_provider.changes.engine import carry_out, planned
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import ChangeRecord, RolloutState

SESSION: Any = SimpleNamespace(kafka=None, cluster=SimpleNamespace(group_id="g"))


@dataclass(frozen=True)
class Request:
    which: str = option("Which one.")
    how_many: int | None = option("How many.", None, least=1)
    names: tuple[str, ...] = option("Some names.", ())
    really: bool = option("Really.", False)


class Turn(Change[Request]):
    name, title, summary, request = "things turn", "Turn things", "Turn them.", Request
    goes_on = True

    def __init__(self) -> None:
        self.seen = 1
        self.applied: list[tuple[Plan, Any]] = []

    def plan(self, session: Any, request: Request) -> Plan:
        asked = {"which": request.which}
        return Plan(self.name, "g", request.which, "Turn it?", (f"turn {self.seen}",), {"seen": self.seen}, asked)

    def apply(self, session: Any, plan: Plan, act: Any, report: Callable[[str], None]) -> Done:
        self.applied.append((plan, act))
        return Done({"done": plan.hash})

    def done_before(self, session: Any, plan: Plan) -> Done:
        return Done({"done": plan.hash})

    def takes_up(self, request: Request, unfinished: Plan) -> bool:
        return self.goes_on


class Act:
    """A change under its lease, as the journal keeps it."""

    def __init__(self, document: Any, *, taken_up: bool) -> None:
        self.documents = [document]
        self.taken_up, self.record = taken_up, "turn 1"

    def replan(self, about: str, document: Any) -> None:
        self.documents.append(document)


@pytest.fixture
def turn() -> Turn:
    return Turn()


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> dict[str, ChangeRecord]:
    """The changes that the journal has; one that is open is taken up by the plan with its hash."""
    found: dict[str, ChangeRecord] = {}

    @contextmanager
    def group_change(
        _: Any, kind: str, about: str, document: Any, *, take_over: bool, begins_again: bool
    ) -> Iterator[Act]:
        begun = [each for each in found.values() if each.state.is_open]
        yield Act(document, taken_up=any(each.plan["hash"] == document["hash"] for each in begun))

    monkeypatch.setattr(engine, "read_journal", lambda *_: JournalContent(changes=found))
    monkeypatch.setattr(engine, "Journal", lambda *_, **__: "a journal")
    monkeypatch.setattr(engine, "group_change", group_change)
    return found


def record(plan: Plan, state: RolloutState) -> ChangeRecord:
    return ChangeRecord("c1", plan.kind, plan.about, plan.to_dict(), state, 0.0)


def test_the_plan_that_was_shown_is_carried_out_and_no_other(turn: Turn, journal: Any) -> None:
    plan = planned(turn, SESSION, Request("a"))
    assert carry_out(turn, SESSION, plan, actor="me").to_dict() == {"done": plan.hash}
    turn.seen = 2
    with pytest.raises(PlanMovedError, match=r"does not fit any more.*turn 2"):
        carry_out(turn, SESSION, plan, actor="me")
    assert len(turn.applied) == 1


def test_where_nobody_has_approved_it_the_plan_made_under_the_lease_is_shown_and_carried_out(
    turn: Turn, journal: Any
) -> None:
    plan, lines = planned(turn, SESSION, Request("a")), list[str]()
    turn.seen = 2
    carry_out(turn, SESSION, plan, actor="me", as_found=True, report=lines.append)
    ((applied, act),) = turn.applied
    assert applied.content == {"seen": 2}
    assert act.documents[-1]["hash"] == applied.hash
    assert lines[-1] == "turn 2"


def test_what_was_begun_is_shown_and_taken_up_whatever_is_there_now(turn: Turn, journal: Any) -> None:
    begun = turn.plan(SESSION, Request("a"))
    journal["c1"] = record(begun, RolloutState.PAUSED)
    turn.seen = 2
    plan = planned(turn, SESSION, Request("b"))
    assert plan == replace(begun, is_unfinished=True)
    carry_out(turn, SESSION, plan, actor="me")
    ((applied, act),) = turn.applied
    assert applied is plan
    assert act.taken_up
    turn.goes_on = False
    assert planned(turn, SESSION, Request("b")).content == {"seen": 2}


def test_a_change_that_begins_again_is_planned_for_what_is_left_and_never_taken_up(turn: Turn, journal: Any) -> None:
    class Again(Turn):
        begins_again = True

    again = Again()
    begun = again.plan(SESSION, Request("a"))
    journal["c1"] = record(begun, RolloutState.PAUSED)
    again.seen = 2
    plan = planned(again, SESSION, Request("a"))
    assert plan.content == {"seen": 2}
    with pytest.raises(PlanMovedError):
        carry_out(again, SESSION, begun, actor="me")
    carry_out(again, SESSION, plan, actor="me")
    assert [applied.content for applied, _ in again.applied] == [{"seen": 2}]


def test_a_change_that_closes_another_gets_the_journal_and_is_not_recorded_itself(turn: Turn, journal: Any) -> None:
    class Closes(Turn):
        closes = True

    closes = Closes()
    carry_out(closes, SESSION, closes.plan(SESSION, Request("a")), actor="me")
    ((_, act),) = closes.applied
    assert act == "a journal"


def test_what_another_version_has_begun_is_not_taken_up(turn: Turn, journal: Any) -> None:
    begun = record(turn.plan(SESSION, Request("a")), RolloutState.PAUSED)
    journal["c1"] = replace(begun, plan={**begun.plan, "schema": 7})
    with pytest.raises(ConfigurationError, match="its schema is 7"):
        planned(turn, SESSION, Request("a"))


def test_a_plan_that_was_carried_out_before_is_not_carried_out_again(turn: Turn, journal: Any) -> None:
    plan, lines = planned(turn, SESSION, Request("a")), list[str]()
    journal["c1"] = record(plan, RolloutState.DONE)
    carry_out(turn, SESSION, plan, actor="me", report=lines.append)
    assert turn.applied == []
    assert lines == ["Nothing to do: c1 has carried this plan out."]


def test_without_a_lease_the_plan_has_to_be_the_same_and_no_journal_is_touched(turn: Turn) -> None:
    turn.takes_lease = False  # type: ignore[misc]
    plan = planned(turn, SESSION, Request("a"))
    carry_out(turn, SESSION, plan, actor="me")
    assert turn.applied == [(plan, None)]
    turn.seen = 2
    with pytest.raises(PlanMovedError):
        carry_out(turn, SESSION, plan, actor="me")


def test_the_journal_keeps_so_many_lines_of_a_plan(turn: Turn, journal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(turn.plan(SESSION, Request("a")), lines=("x",) * (MOST_LINES + 1))
    monkeypatch.setattr(turn, "plan", lambda *_: long)
    carry_out(turn, SESSION, long, actor="me")
    ((_, act),) = turn.applied
    assert len(act.documents[0]["lines"]) == MOST_LINES
    assert Plan.from_dict(act.documents[0]).hash == long.hash


def test_a_plan_comes_back_and_one_that_was_edited_or_is_of_another_change_does_not(turn: Turn) -> None:
    document = turn.plan(SESSION, Request("a")).to_dict()
    assert Plan.from_dict(document, turn.name).to_dict() == document
    broken = ({**document, "content": {"seen": 9}}, {**document, "kind": "other"}, {"kind": turn.name}, None, [])
    for each in broken:
        with pytest.raises(ConfigurationError, match="no plan of things turn"):
            Plan.from_dict(each, turn.name)


def test_a_request_is_read_from_words_as_a_template_gives_them() -> None:
    given = {"which": "a", "how_many": "3", "names": " b, c-1 ,", "really": "True"}
    assert read_request(Request, given) == Request("a", 3, ("b", "c-1"), True)
    assert read_request(Request, {"which": "a", "how_many": "", "names": None}) == Request("a")
    assert read_request(Request, {"which": "a", "names": ["b, c"]}) == Request("a", names=("b, c",))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "Missing: which"),
        ({"which": ""}, "Missing: which"),
        ({"which": "a", "other": 1}, "Unknown: other"),
        ({"which": "a", "how_many": "0"}, "how_many is '0'.*from 1 on"),
        ({"which": "a", "how_many": "many"}, "how_many is 'many'"),
        ({"which": "a", "really": "perhaps"}, "really is 'perhaps'"),
    ],
)
def test_a_request_that_cannot_be_read_names_the_field(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){problem}"):
        read_request(Request, given)
