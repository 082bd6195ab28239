"""The gate's conditions on what the group writes, each broken alone, and what is remembered from look to look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.check import Check
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.observe.topic_progress import Ends, Held, LogView, Memory, Movement

NOW = 1_000_000.0
RESTARTED = NOW - 30.0
INCONCLUSIVE = Verdict.INCONCLUSIVE

OPEN = TransactionDescription(
    "lab-mirror-0",
    TransactionState.ONGOING,
    1,
    0,
    timeout_ms=60_000,
    started_at_ms=int((NOW - 10) * 1000),
    partitions=(("out", 0),),
)


def answers(gate: Any) -> dict[str, Check]:
    return {check.subject: check for check in evaluate(gate.expected(), gate.cluster.observe())}


def not_passed(gate: Any) -> dict[str, Verdict]:
    return {name: check.verdict for name, check in answers(gate).items() if not check.passed}


def started(seconds_ago: float) -> TransactionDescription:
    return OPEN._replace(started_at_ms=int((NOW - seconds_ago) * 1000))


def see(gate: Any, **changes: Any) -> None:
    gate.cluster.logs = replace(gate.cluster.logs, **changes)


# transactions


def test_a_transaction_within_its_timeout_is_fine(gate: Any) -> None:
    see(gate, open_transactions=(OPEN,), held=(Held("out", 0, 7, NOW - 60),))
    assert not_passed(gate) == {}
    assert answers(gate)["transactions"].found == "1 open within their timeouts on 9 partitions"


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        (
            {"open_transactions": (started(76),)},
            "the transaction of lab-mirror-0 is open (Ongoing) 16 s past its timeout",
        ),
        ({"held": (Held("out", 0, 7, NOW - 31),)}, "out-0 is held at 7 for 31 s by a transaction that no"),
        ({"held": (Held("out", 1, 7, NOW - 31),), "open_transactions": (OPEN,)}, "out-1 is held at 7"),
        ({"unreadable": frozenset({"secret"})}, "secret cannot be read"),
    ],
)
def test_a_transaction_that_does_not_end_pauses_the_roll(gate: Any, changes: dict[str, Any], evidence: str) -> None:
    see(gate, **changes)
    assert not_passed(gate) == {"transactions": INCONCLUSIVE}
    assert evidence in answers(gate)["transactions"].found


@pytest.mark.parametrize(
    "changes",
    [
        {"open_transactions": (started(74),)},  # its coordinator looks every ten seconds
        {"held": (Held("out", 0, 7, NOW - 29),)},  # its markers may be under way
        {"open_transactions": (started(74)._replace(state=TransactionState.PREPARE_COMMIT),)},
    ],
)
def test_what_may_still_end_by_itself_is_left_alone(gate: Any, changes: dict[str, Any]) -> None:
    see(gate, **changes)
    assert not_passed(gate) == {}


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "of a newer broker"])
def test_a_transaction_whose_end_is_decided_and_does_not_come_is_overdue_like_any(gate: Any, state: str) -> None:
    held = (Held("out", 0, 7, NOW - 76),)
    see(gate, open_transactions=(started(74)._replace(state=TransactionState(state)),), held=held)
    assert not_passed(gate) == {}
    see(gate, open_transactions=(started(76)._replace(state=TransactionState(state)),), held=held)
    assert not_passed(gate) == {"transactions": INCONCLUSIVE}
    check = answers(gate)["transactions"]
    assert f"the transaction of lab-mirror-0 is open ({state}) 16 s past its timeout" in check.found
    assert "does not take its marker" in (check.remedy or "")


def test_topics_that_cannot_be_looked_at_leave_both_open(gate: Any) -> None:
    gate.cluster.see(logs=None, logs_problem="no broker answers")
    assert not_passed(gate) == dict.fromkeys(("transactions", "progress"), INCONCLUSIVE)
    assert {answers(gate)[name].found for name in not_passed(gate)} == {"no broker answers"}


# progress


def moves(gate: Any, **movements: Movement) -> None:
    see(gate, movements=movements)


def test_a_source_that_moved_before_and_stands_since_is_waited_for(gate: Any) -> None:
    moves(gate, mirror=Movement(0, steady_at=RESTARTED - 1, moved_since=RESTARTED - 2))
    assert not_passed(gate) == {"progress": INCONCLUSIVE}
    assert answers(gate)["progress"].found == "mirror moved before the restart and has not since"


def test_a_move_that_began_before_the_restart_is_no_progress(gate: Any) -> None:
    moves(gate, mirror=Movement(4, steady_at=RESTARTED + 1, moved_since=RESTARTED - 0.1))
    assert not_passed(gate) == {"progress": INCONCLUSIVE}


@pytest.mark.parametrize(
    "movement",
    [
        Movement(),  # never seen to move
        Movement(0, steady_at=None, moved_since=RESTARTED - 5),  # it was just given something
        Movement(0, steady_at=RESTARTED - 31, moved_since=RESTARTED - 31),  # idle long before
        Movement(1, steady_at=RESTARTED - 1, moved_since=RESTARTED + 2),  # moves again
    ],
)
def test_a_source_that_was_idle_or_moves_again_owes_nothing(gate: Any, movement: Movement) -> None:
    moves(gate, mirror=movement)
    assert not_passed(gate) == {}


def test_a_source_that_was_paused_meanwhile_owes_nothing(gate: Any) -> None:
    moves(gate, mirror=Movement(0, steady_at=RESTARTED - 1, moved_since=RESTARTED - 2))
    gate.cluster.connector("mirror", target_state="PAUSED")
    assert not_passed(gate) == {}


# what is remembered

OUT = {"mirror": frozenset({"out"})}


def ends(stable: int, end: int) -> dict[tuple[str, int], Ends]:
    return {("out", 0): Ends(stable, end), ("other", 0): Ends(5, 5)}


def test_a_held_partition_is_dated_from_the_first_look_at_that_offset() -> None:
    memory = Memory()
    for at, found in ((1.0, ends(7, 9)), (2.0, ends(7, 12)), (3.0, ends(12, 13)), (4.0, ends(12, 13))):
        memory.take(at, found, OUT)
    assert memory.held == (Held("out", 0, 12, 3.0),)
    memory.take(5.0, ends(13, 13), OUT)
    assert memory.held == ()


def test_a_source_is_steady_after_three_growing_looks_in_a_row() -> None:
    memory = Memory()
    seen = []
    for at, end in enumerate((10, 11, 12, 12, 13, 14, 15, 15), start=1):
        memory.take(float(at), ends(end, end), OUT)
        seen.append(memory.movements["mirror"])
    assert [movement.looks for movement in seen] == [0, 1, 2, 0, 1, 2, 3, 0]
    assert [movement.steady_at for movement in seen] == [None] * 6 + [7.0, 7.0]
    assert [movement.moved_since for movement in seen] == [0.0, 1.0, 2.0, 2.0, 4.0, 5.0, 6.0, 6.0]


def test_only_its_own_topics_move_a_source() -> None:
    memory = Memory()
    memory.take(1.0, {("out", 0): Ends(1, 1), ("other", 0): Ends(5, 5)}, OUT)
    memory.take(2.0, {("out", 0): Ends(1, 1), ("other", 0): Ends(9, 9)}, OUT)
    assert memory.movements["mirror"] == Movement()


def test_the_view_of_a_group_that_writes_nothing_is_empty() -> None:
    assert LogView().held == ()
