"""What a fencing round does, decided from a look: KIP-618's table, and transactions that are held open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.fencing.change import FencingRequest, fencing_plan
from airflow_eos_provider.changes.fencing.fencing_facts import ConnectorLook, FenceId, FenceLook
from airflow_eos_provider.changes.fencing.fencing_plan import (
    SLOW_IDS,
    ConnectorRound,
    decide,
    decide_connector,
)
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, TaskCountRecord, TaskSet
from airflow_eos_provider.errors import PlanMovedError, RefusedError
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.stored import from_json

COMMIT, RECORD = 20, 10


def connector(
    tasks: int = 3,
    record: int | None = 3,
    *,
    pending: bool = False,
    states: str = "",
    held: tuple[int, ...] = (),
    **more: Any,
) -> ConnectorLook:
    """A connector ``c``.

    :param states: of its tasks by their first letters, as in ``RRF``; all RUNNING by default.
    :param held: numbers of the ids that hold a transaction open.
    """
    words = {"R": "RUNNING", "F": "FAILED", "U": "UNASSIGNED", "P": "PAUSED"}
    state = ConnectorConfigState(
        name="c",
        config={},
        config_offset=1,
        target_state="STARTED",
        task_set=TaskSet(tasks, COMMIT, {}),
        commit_offset=COMMIT,
        fencing=None if record is None else TaskCountRecord(record, RECORD if pending else COMMIT + 1),
        pending_fencing=pending,
    )
    ids = tuple(
        FenceId(f"g-c-{number}", number, described(number) if number in held else None, held=number in held)
        for number in sorted({*range(record or 0), *held})
    )
    statuses = tuple(TaskStatus(n, words[letter], "w:1") for n, letter in enumerate(states or "R" * tasks))
    state_fields = {name: value for name, value in more.items() if name in ConnectorConfigState.__dataclass_fields__}
    others = {name: value for name, value in more.items() if name not in state_fields}
    return ConnectorLook(replace(state, **state_fields), ids, statuses, **others)


def described(number: int, epoch: int = 4) -> TransactionDescription:
    return TransactionDescription(f"g-c-{number}", TransactionState.ONGOING, 7, epoch, 60_000, 1_000, (("t", 0),))


def group(*connectors: ConnectorLook, enabled: Mapping[str, bool | None] | None = None) -> FenceLook:
    return FenceLook(0.0, "g", "cluster", {"w:1": True} if enabled is None else enabled, connectors)


def planned(seen: ConnectorLook) -> Plan:
    return fencing_plan(group(seen), decide(group(seen)), FencingRequest())


def what(round_: ConnectorRound) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    return round_.fence, round_.restart, round_.awaits_record


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(connector(), ((), (), False), id="not pending, nothing open"),
        pytest.param(
            connector(2, 3, pending=True, states="FF"), ((0, 1, 2), (0, 1), True), id="the old count is fenced"
        ),
        pytest.param(connector(3, 2, pending=True, states="FFF"), ((0, 1), (0, 1, 2), True), id="and not the new one"),
        pytest.param(connector(3, 2, pending=True, states="RFU"), ((0, 1), (1,), True), id="failed tasks restart"),
        pytest.param(
            connector(3, None, pending=True, states="FFF"), ((), (0, 1, 2), True), id="no record: record only"
        ),
        pytest.param(connector(1, 1, pending=True, states="F"), ((), (0,), True), id="one to one: record only"),
        pytest.param(connector(1, 1, pending=True, states="F", held=(0,)), ((0,), (0,), True), id="one to one, held"),
        pytest.param(connector(2, 1, pending=True, states="FF"), ((0,), (0, 1), True), id="one to two"),
        pytest.param(connector(3, 2, pending=True, states="UUU"), ((), (), True), id="Connect is at it"),
        pytest.param(
            connector(0, 3, pending=True, states="", target_state="STOPPED"), ((0, 1, 2), (), False), id="stopped"
        ),
        pytest.param(
            connector(0, None, pending=True, target_state="STOPPED"), ((), (), False), id="stopped, never ran"
        ),
        pytest.param(
            connector(3, 2, pending=True, states="FFF", inconsistent=True), ((0, 1), (), False), id="inconsistent"
        ),
        pytest.param(connector(states="FRR", held=(0,)), ((0,), (0,), False), id="held by a task that failed"),
        pytest.param(connector(held=(7,)), ((7,), (), False), id="held under a number that is no task's"),
        pytest.param(connector(states="URR", held=(0,)), ((0,), (), False), id="Connect starts it by itself"),
        pytest.param(connector(held=(1,)), ((), (), False), id="held by a task that runs: left alone"),
        pytest.param(
            connector(held=(1,), unknown="no broker answers"), ((), (), False), id="in a cluster that is not known"
        ),
    ],
)
def test_a_round_is_what_kip_618_says_and_ends_what_is_held_open(
    seen: ConnectorLook, expected: tuple[tuple[int, ...], tuple[int, ...], bool]
) -> None:
    found = decide_connector(seen, named=False)
    assert what(found) == expected
    assert found.nothing_to_do is (expected == ((), (), False))


def test_what_a_running_task_holds_open_is_ended_if_the_connector_is_named_and_the_plan_says_its_cost() -> None:
    found = decide_connector(connector(held=(1,)), named=True)
    assert what(found) == ((1,), (1,), False)
    assert found.running == (1,)
    assert any("task 1 runs and would be fenced: it fails" in line for line in found.lines())
    assert any("restart task 1" in line for line in found.lines())
    left_alone = decide_connector(connector(held=(1,)), named=False)
    assert "name the connector" in left_alone.why


def test_workers_below_enabled_have_no_ids_and_nothing_is_done() -> None:
    decision = decide(group(connector(2, 3, pending=True, states="FF"), enabled={"w:1": False, "w:2": False}))
    assert decision.rounds == ()
    assert "no transactional ids" in decision.unused


@pytest.mark.parametrize("other", [False, None])
def test_workers_that_differ_or_do_not_say_are_refused(other: bool | None) -> None:
    with pytest.raises(RefusedError, match=r"w:2: (not enabled|unknown)"):
        decide(group(connector(), enabled={"w:1": True, "w:2": other}))


def test_only_connectors_with_a_pending_round_are_looked_at_if_that_is_asked_for() -> None:
    one = connector(held=(7,))
    assert [r.connector for r in decide(group(one)).due] == ["c"]
    assert decide(group(one), pending_only=True).rounds == ()


@pytest.mark.parametrize(
    "moved",
    [
        connector(2, 3, pending=True, states="FF", commit_offset=COMMIT + 9),
        connector(2, 3, pending=True, states="FF", config_offset=2),
        connector(2, 3, pending=True, states="FF", target_state="PAUSED"),
        connector(2, 4, pending=True, states="FF"),
        connector(2, 3, pending=True, states="FU"),
        connector(2, 3, pending=True, states="FF", held=(1,)),
        connector(2, 3),
    ],
)
def test_a_plan_is_refused_when_what_it_was_made_from_has_moved(moved: ConnectorLook) -> None:
    plan = planned(connector(2, 3, pending=True, states="FF"))
    plan.require(plan.short_hash)
    with pytest.raises(PlanMovedError, match=plan.short_hash):
        planned(moved).require(plan.short_hash)


def test_another_transaction_of_the_same_id_is_another_plan() -> None:
    one = connector(held=(7,))
    other = replace(one, ids=tuple(replace(i, known=described(7, epoch=5)) if i.held else i for i in one.ids))
    assert planned(one).hash != planned(other).hash


def test_a_plan_comes_back_from_the_journal_without_its_words() -> None:
    seen = connector(2, 3, pending=True, states="FF", held=(1,))
    without_why = tuple(replace(each, why="") for each in decide(group(seen)).due)
    content = json.loads(json.dumps(planned(seen).content))
    assert from_json(tuple[ConnectorRound, ...], content["rounds"]) == without_why


def test_a_round_that_may_be_too_long_for_connect_says_what_helps() -> None:
    few, many = (
        decide_connector(connector(2, count, pending=True, states="FF"), named=False)
        for count in (SLOW_IDS, SLOW_IDS + 1)
    )
    assert not any("retry.backoff" in line for line in few.lines())
    assert any("retry.backoff.max.ms" in line for line in many.lines())
    assert any(f"fence ids 0 to {SLOW_IDS}" in line for line in many.lines())


def test_the_kafka_cluster_of_the_ids_counts() -> None:
    here, there = connector(held=(7,)), connector(held=(7,), cluster_id="kafka-2")
    assert "in the Kafka cluster kafka-2" in decide_connector(there, named=True).why
    assert planned(here).hash != planned(there).hash
