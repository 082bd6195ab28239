"""A planned change of source offsets: what its content is, and when it is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_eos_provider.errors import PlanMovedError, RefusedError
from airflow_eos_provider.offsets.verbs.apply import _require_nothing_elsewhere
from airflow_eos_provider.offsets.verbs.offset_changes import Write
from airflow_eos_provider.offsets.verbs.offsets_plan import ConnectorLook, OffsetsPlan, PlannedTopic, TargetState
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb, Wanted
from airflow_eos_provider.plan_hash import hash_of
from airflow_eos_provider.stored import from_json

KEY = b'["c",{"file":"a"}]'


def look(state: TargetState = TargetState.STARTED, **config: str) -> ConnectorLook:
    return ConnectorLook("g", "cluster", "c", state, hash_of(config), exactly_once=True)


def plan(
    state: TargetState = TargetState.STARTED, before: bytes | None = b"1", after: bytes | None = None
) -> OffsetsPlan:
    return OffsetsPlan(
        OffsetsRequest(Verb.RESET, "c"),
        look(state),
        (PlannedTopic("offsets", "id", 25),),
        (Write("offsets", 3, KEY, before, after),),
    )


def test_the_values_of_a_running_connector_move_and_do_not_count_those_of_a_stopped_one_do() -> None:
    assert plan(before=b"1").content() == plan(before=b"2").content()
    stopped = plan(TargetState.STOPPED, before=b"1")
    with pytest.raises(PlanMovedError, match="the offsets have changed since"):
        stopped.require_unmoved(plan(TargetState.STOPPED, before=b"2"))
    stopped.require_unmoved(plan(TargetState.STOPPED, before=b"1"))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (replace(plan(), look=look(TargetState.PAUSED)), "target state was STARTED and is PAUSED"),
        (replace(plan(), look=look(topic="other")), "its configuration"),
        (replace(plan(), look=replace(look(), exactly_once=False)), "exactly once was True and is False"),
        (replace(plan(), last_change="20261122T101500-offsets-reset-1"), "change 20261122T101500-offsets-reset-1 was"),
        (replace(plan(), topics=(PlannedTopic("offsets", "another id", 25),)), "created again"),
        (plan(after=b"5"), "have changed since"),
    ],
)
def test_what_has_moved_is_named(now: OffsetsPlan, said: str) -> None:
    with pytest.raises(PlanMovedError, match=said):
        plan().require_unmoved(now)


def test_a_part_of_the_plan_may_be_written_already_and_nothing_else_may_come_in() -> None:
    plan().require_within([])
    plan().require_within(plan(before=b"7").writes)
    for other in (Write("offsets", 3, b'["c",{"file":"b"}]', b"1", None), Write("offsets", 3, KEY, b"1", b"2")):
        with pytest.raises(PlanMovedError, match="1 more offsets would be written"):
            plan().require_within([other])


def test_a_plan_comes_back_from_the_journal() -> None:
    later = replace(plan(TargetState.STOPPED, after=b"\xff"), last_change="20261122T101500-offsets-reset-1")
    assert from_json(OffsetsPlan, json.loads(json.dumps(later.content()))) == later
    assert f"last changed by {later.last_change}" in later.lines()[0]
    assert later.lines()[-1] == r'  offsets-3 ["c",{"file":"a"}]: 1 -> \xff'


def test_a_prune_that_only_ends_a_transaction_is_something_to_do_and_its_hash_does_not_move_with_it() -> None:
    """The brokers end a transaction too, after its timeout, while a person reads the plan."""
    absent = replace(plan(TargetState.ABSENT), request=OffsetsRequest(Verb.PRUNE, "c"))
    ending = replace(absent, ended=("g-c-0",))
    assert ending.content() == absent.content()
    only = replace(ending, writes=())
    assert not only.nothing_to_do
    assert only.steps() == [
        "fence its transactional ids (g-c-0 and so on), which ends the open transaction of g-c-0",
    ]
    assert replace(only, ended=()).nothing_to_do


def test_a_migration_without_offsets_is_shown_with_its_other_steps() -> None:
    migrate = OffsetsRequest(Verb.MIGRATE, "c", own_topic="c-offsets")
    assert replace(plan(), request=migrate, writes=(), own_topic="c-offsets").steps() == [
        "stop the connector (now STARTED); its tasks do nothing until the end",
        "fence its transactional ids (g-c-0 and so on)",
        "change the connector's configuration: offsets.storage.topic=c-offsets",
        "bring the connector back to STARTED, and watch its tasks for a moment",
    ]


def test_an_offsets_topic_that_another_person_has_set_meanwhile_is_not_overwritten() -> None:
    for known in ("", "offsets"):
        plan().require_own_topic(known)
    with pytest.raises(RefusedError, match=r"c got offsets\.storage\.topic=theirs"):
        plan().require_own_topic("theirs")


def test_a_connector_returns_to_its_state_unless_it_was_at_rest_or_another_person_has_given_it_one() -> None:
    started, paused, stopped, absent = TargetState
    for before, other in ((started, paused), (paused, started)):
        assert {plan(before).returns_to(now) for now in (stopped, before)} == {before}
        assert {plan(before).returns_to(now) for now in (other, absent)} == {None}
    for before in (stopped, absent):
        assert {plan(before).returns_to(now) for now in TargetState} == {None}


def test_a_configuration_is_kept_as_a_digest() -> None:
    assert "canary" not in str(replace(plan(), look=look(password="canary")).content())


def test_values_that_are_carried_count_only_where_they_are_at_rest() -> None:
    def carried(verb: str, state: TargetState, after: bytes) -> OffsetsPlan:
        return replace(plan(state, after=after), request=requests[verb])

    requests = {
        "migrate": OffsetsRequest(Verb.MIGRATE, "c", own_topic="own"),
        "copy": OffsetsRequest(Verb.COPY, "c", source="d"),
        "alter": OffsetsRequest(Verb.ALTER, "c", wanted=(Wanted({"file": "a"}, {"n": 1}),)),
    }
    running, stopped = TargetState.STARTED, TargetState.STOPPED
    assert carried("migrate", running, b"1").content() == carried("migrate", running, b"2").content()
    carried("migrate", running, b"1").require_within(carried("migrate", running, b"2").writes)
    assert carried("migrate", stopped, b"1").content() != carried("migrate", stopped, b"2").content()
    assert carried("copy", stopped, b"1").content() == carried("copy", stopped, b"2").content()
    assert carried("alter", running, b"1").content() != carried("alter", running, b"2").content()
    with pytest.raises(PlanMovedError):
        carried("migrate", running, b"1").require_within([replace(plan().writes[0], after=None)])


@pytest.mark.parametrize(
    ("state", "kept"), [(TargetState.STARTED, 2), (TargetState.PAUSED, 2), (TargetState.STOPPED, 1)]
)
def test_what_is_right_already_is_planned_only_where_it_may_still_move(state: TargetState, kept: int) -> None:
    same = Write("offsets", 0, b'["c",{"file":"b"}]', b"2", b"2")
    assert len(replace(plan(state), writes=(*plan().writes, same)).without_idle_writes().writes) == kept
    assert replace(plan(state), writes=(same,)).without_idle_writes().nothing_to_do


def test_a_migration_replaces_nothing_in_another_kafka_cluster() -> None:
    """A group of the same name there may have a connector of the same name."""
    here, there = (Write(f"{cluster}own", 3, KEY, b"1", b"2") for cluster in ("", "there/"))
    _require_nothing_elsewhere([here, replace(there, before=None), replace(there, before=b"2")])
    with pytest.raises(RefusedError, match="there/own, in another Kafka cluster, already has offsets"):
        _require_nothing_elsewhere([here, there])


def test_a_topic_that_is_missing_elsewhere_is_created_only_if_something_is_written_there() -> None:
    missing = PlannedTopic("there/offsets", None, 25)
    without = replace(plan(), topics=(*plan().topics, missing))
    assert without.created is None
    written = replace(without, writes=(Write("there/offsets", 3, KEY, None, b"2"),))
    assert written.created == missing
    assert replace(without, own_topic="offsets").created == missing
