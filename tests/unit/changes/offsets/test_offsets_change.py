"""Changes of source offsets: what a request becomes, and how several connectors are changed one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Done, Plan, read_request
from airflow_eos_provider.changes.offsets.change import (
    ALTER,
    MIGRATE,
    PRUNE,
    RESET,
    RESTORE,
    MigrateRequest,
    ResetRequest,
    RestoreRequest,
)
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError
from airflow_eos_provider.journal.group_change import GroupChange
from airflow_eos_provider.journal.records import ChangeRecord, RolloutState
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.leftovers import Leftovers
from airflow_eos_provider.offsets.verbs.apply import ConnectorReport
from airflow_eos_provider.offsets.verbs.offset_changes import Write
from airflow_eos_provider.offsets.verbs.offsets_plan import ConnectorLook, OffsetsPlan, PlannedTopic, TargetState
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb, Wanted


class Changer:
    """Knows the connectors ``a`` and ``b``, and what ``gone`` has left.

    :ivar plans: by connector, the plan that it makes.
    :ivar carried_out: the connectors, with the steps that were over when each began.
    """

    group_id = "g"

    def __init__(self) -> None:
        self.plans: dict[str, OffsetsPlan] = {}
        self.carried_out: list[str] = []
        self.fails = ""

    def plan(self, request: OffsetsRequest) -> OffsetsPlan:
        return self.plans.setdefault(request.connector, planned(request))

    def config(self) -> Any:
        return SimpleNamespace(connectors={"a": None, "b": None})

    def leftovers(self) -> dict[str, Leftovers]:
        return {"gone": Leftovers("gone", 1, 2, {})}

    def deleted(self, left: dict[str, Leftovers]) -> list[str]:
        return list(left)

    def carry_out(self, plan: OffsetsPlan, act: GroupChange) -> ConnectorReport:
        if plan.connector == self.fails:
            raise EosError("the lights went out")
        for step in ("write", "start"):
            with act.step(step):
                pass
        self.carried_out.append(plan.connector)
        return ConnectorReport(plan.connector, 1)

    def done_before(self, plan: OffsetsPlan) -> ConnectorReport:
        return ConnectorReport(plan.connector, 0)


def planned(request: OffsetsRequest, before: bytes | None = b"1") -> OffsetsPlan:
    name = request.connector
    look = ConnectorLook("g", "cluster", name, TargetState.STOPPED, "digest", exactly_once=True)
    writes = (Write("offsets", 0, f'["{name}",{{"n":1}}]'.encode(), before, None),)
    return OffsetsPlan(request, look, (PlannedTopic("offsets", "id", 25),), writes)


@pytest.fixture
def changer(monkeypatch: pytest.MonkeyPatch) -> Changer:
    found = Changer()
    monkeypatch.setattr(type(RESET).__mro__[1], "_changer", lambda *_, **__: found)
    saved = SimpleNamespace(connectors_with_offsets=lambda: ["a", "b", "c"])
    monkeypatch.setattr(backup, "read", lambda _: saved)
    return found


def wanted(change: Any, **given: Any) -> list[OffsetsRequest]:
    found, _ = change._wanted(Changer(), read_request(change.request, given))
    return list(found)


def test_a_request_becomes_one_for_each_connector(changer: Changer) -> None:
    del changer
    assert wanted(RESET, connector="c", where='{"a": 1}') == [OffsetsRequest(Verb.RESET, "c", where={"a": 1})]
    listed = '[{"partition": {"a": 1}, "offset": null}]'
    assert wanted(ALTER, connector="c", offsets=listed) == [
        OffsetsRequest(Verb.ALTER, "c", wanted=(Wanted({"a": 1}, None),))
    ]
    assert wanted(ALTER, connector="c", partition='{"a": 1}', offset='{"n": 1}', unlike="True", absent=True) == [
        OffsetsRequest(Verb.ALTER, "c", wanted=(Wanted({"a": 1}, {"n": 1}),), unlike=True, absent=True)
    ]
    assert wanted(ALTER, connector="c", where='{"a": 1}', offset='{"n": 1}') == [
        OffsetsRequest(Verb.ALTER, "c", where={"a": 1}, wanted=(Wanted(None, {"n": 1}),), each=True)
    ]
    assert wanted(ALTER, connector="c", each=True, offset="null") == [
        OffsetsRequest(Verb.ALTER, "c", wanted=(Wanted(None, None),), each=True)
    ]
    assert wanted(MIGRATE, connector="c", to="own") == [OffsetsRequest(Verb.MIGRATE, "c", own_topic="g-c-offsets")]
    assert wanted(MIGRATE, connector="c", to="own", topic="t") == [OffsetsRequest(Verb.MIGRATE, "c", own_topic="t")]
    assert wanted(MIGRATE, connector="c", to="global") == [OffsetsRequest(Verb.MIGRATE, "c", own_topic="")]
    assert wanted(PRUNE) == wanted(PRUNE, connector="gone") == [OffsetsRequest(Verb.PRUNE, "gone")]


def test_a_backup_is_named_by_its_whole_path_and_all_of_it_is_of_those_that_exist(changer: Changer) -> None:
    file = str(Path("before.jsonl").absolute())
    assert wanted(RESTORE, connector="c", file="before.jsonl", from_elsewhere=True) == [
        OffsetsRequest(Verb.RESTORE, "c", file=file, from_elsewhere=True)
    ]
    assert wanted(RESTORE, connector="c", source="d") == [OffsetsRequest(Verb.COPY, "c", source="d")]
    assert wanted(RESTORE, connector="c", source="d", file="before.jsonl") == [
        OffsetsRequest(Verb.COPY, "c", source="d", file=file)
    ]
    both = [OffsetsRequest(Verb.RESTORE, name, file=file) for name in ("a", "b")]
    assert wanted(RESTORE, each=True, connector="before.jsonl") == both  # as on the command line
    assert wanted(RESTORE, each=True, file="before.jsonl") == both  # as in a form
    session: Any = SimpleNamespace()
    plan = RESTORE.plan(session, RestoreRequest(each=True, file=file))
    assert plan.about == "a, b"
    assert plan.lines[-1] == "Skipped, because they do not exist: c."
    changer.plans = {name: replace(changer.plans[name], writes=()) for name in changer.plans}
    assert "a, b are as asked for" in RESTORE.plan(session, RestoreRequest(each=True, file=file)).nothing


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (ALTER, {}),
        (ALTER, {"offset": "null"}),
        (ALTER, {"offsets": "[]", "file": "f"}),
        (ALTER, {"offsets": "[]", "where": "{}"}),
        (ALTER, {"offset": "null", "where": "{}", "each": True}),
        (ALTER, {"file": "f", "offset": "null"}),
        (RESTORE, {}),
        (RESTORE, {"each": True, "file": "f"}),
        (RESTORE, {"each": True, "source": "d"}),
        (RESTORE, {"source": "c"}),
        (MIGRATE, {"to": "global", "topic": "t"}),
        (MIGRATE, {"to": "elsewhere"}),
    ],
)
def test_what_contradicts_itself_is_refused_before_anybody_is_asked(change: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        read_request(change.request, {"connector": "c", **given})


def test_a_filter_that_is_empty_is_not_every_source_partition(changer: Changer) -> None:
    del changer
    with pytest.raises(ConfigurationError, match="--where is empty"):
        wanted(ALTER, connector="c", where="{}", offset="null")
    for offsets in ("{", "[]", "[1]", '{"offset": 1}'):
        with pytest.raises(ConfigurationError, match="offsets"):
            wanted(ALTER, connector="c", offsets=offsets)


def test_a_plan_shows_what_is_left_besides_and_which_command_resumes_it(
    changer: Changer,
) -> None:
    session: Any = SimpleNamespace()
    plan = PRUNE.plan(session, read_request(PRUNE.request, {}))
    assert plan.question == "Prune the source offsets of gone in Kafka Connect group g?"
    assert "Deleted connectors have also left:" in plan.lines
    assert PRUNE.takes_up(read_request(PRUNE.request, {}), plan)
    assert PRUNE.takes_up(read_request(PRUNE.request, {"connector": "gone"}), plan), "it is one of those"
    assert not PRUNE.takes_up(read_request(PRUNE.request, {"connector": "other"}), plan)
    of_one = PRUNE.plan(session, read_request(PRUNE.request, {"connector": "gone"}))
    assert PRUNE.takes_up(read_request(PRUNE.request, {}), of_one), "without a name it is for every connector"
    assert not PRUNE.takes_up(read_request(PRUNE.request, {"connector": "other"}), of_one)
    assert not PRUNE.takes_up(read_request(PRUNE.request, {"offsets_topic": "another"}), of_one)
    migration = MIGRATE.plan(session, read_request(MIGRATE.request, {"connector": "a", "to": "own"}))
    same = read_request(MIGRATE.request, {"connector": "a", "to": "own", "topic": ""})
    assert isinstance(same, MigrateRequest)
    assert MIGRATE.takes_up(same, Plan.from_dict(migration.to_dict()))
    assert list(changer.plans) == ["gone", "a"]


def test_what_has_moved_since_a_plan_is_named(changer: Changer) -> None:
    session: Any = SimpleNamespace()
    before = RESET.plan(session, ResetRequest(connector="a"))
    changer.plans["a"] = replace(changer.plans["a"], last_change="20261122T101500-offsets-reset-1")
    now = RESET.plan(session, ResetRequest(connector="a"))
    with pytest.raises(PlanMovedError, match="the change 20261122T101500-offsets-reset-1 was made since"):
        now.require(before.hash, RESET.moved(before, now))
    assert RESET.moved(now, now) == ""
    changer.plans["a"] = replace(changer.plans["a"], writes=())
    assert RESET.moved(before, RESET.plan(session, ResetRequest(connector="a"))) == (
        "The offsets of a are as asked for."
    )


class Journal:
    """Keeps the record of a change in memory."""

    def __init__(self) -> None:
        self.record: Any = None

    def write_change(self, record: ChangeRecord, event: str = "") -> None:
        self.record = record


def begun(plan: Plan, record: ChangeRecord | None = None) -> GroupChange:
    fresh = ChangeRecord("id", plan.kind, plan.about, plan.to_dict(), RolloutState.RUNNING, 1.0)
    journal: Any = Journal()
    return GroupChange(journal, record or fresh, taken_up=record is not None)


def test_several_connectors_have_their_own_steps_and_those_that_are_over_are_not_touched_again(
    changer: Changer,
) -> None:
    session: Any = SimpleNamespace()
    plan = RESTORE.plan(session, RestoreRequest(each=True, file="f"))
    act, changer.fails = begun(plan), "b"
    with pytest.raises(EosError, match="lights"):
        RESTORE.apply(session, plan, act, print)
    assert act.record.done == ("a: write", "a: start")
    changer.fails = ""
    again = begun(plan, act.record)
    report = RESTORE.apply(session, plan, again, print)
    assert report.to_dict() == {
        "connectors": [
            {"connector": "a", "written": 0, "failed": ""},
            {"connector": "b", "written": 1, "failed": ""},
        ]
    }
    assert changer.carried_out == ["a", "b"]
    one = RESET.plan(session, ResetRequest(connector="a"))
    single = begun(one)
    assert RESET.apply(session, one, single, print).lines() == ("a: done, 1 record written.",)
    assert single.record.done == ("write", "start")
    assert RESET.done_before(session, one).document == {"connectors": [ConnectorReport("a", 0).to_dict()]}


def test_a_later_connector_that_has_moved_is_not_changed(changer: Changer) -> None:
    session: Any = SimpleNamespace()
    plan = RESTORE.plan(session, RestoreRequest(each=True, file="f"))
    said = list[str]()
    changer.plans["b"] = replace(changer.plans["b"], writes=planned(changer.plans["b"].request, b"2").writes)
    with pytest.raises(PlanMovedError, match="The plan for b does not fit any more: the offsets have changed"):
        RESTORE.apply(session, plan, begun(plan), said.append)
    assert changer.carried_out == ["a"]
    assert said == ["Done for a. Change the others by name."]


def test_connectors_that_do_not_run_are_one_problem() -> None:
    def problem(*failed: str) -> EosError | None:
        return Done.of_connectors([ConnectorReport(f"c{n}", 1, each) for n, each in enumerate(failed)]).problem

    assert problem("", "") is None
    for failed in (("", "task 0 has failed"), ("task 0 has failed", "task 1 has failed")):
        found = problem(*failed)
        assert found is not None
        assert "c1 are changed, but it does not run: task" in found.found
        assert ("c0 are changed" in found.found) is bool(failed[0])
