"""One edit that serves several workers: written once, restarted one by one, and said so from the plan to the drift."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.rollout.act.decision import ActionKind, decide, expectation
from airflow_eos_provider.rollout.drift.drift import DriftKind, Expected, find_drift
from airflow_eos_provider.rollout.gate.conditions import mode as mode_condition
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.plan.earlier_rolls import temporary_isolation
from airflow_eos_provider.rollout.plan.obstacles import files
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.plan.worker_edits import Former
from airflow_eos_provider.rollout.roll_history import Rollout
from tests.unit.rollout.conftest import DISABLED, NOW, PREPARING, W1, W2, W3, token

SHARED = "/etc/connect/shared.properties"


@pytest.fixture
def cluster(cluster_in: Any) -> Any:
    """w1 and w2 have one file, w3 has its own."""
    return cluster_in(DISABLED).share(W1, W2)


def step(worker_id: str, status: StepStatus, at: float) -> Step:
    return Step(worker_id, status, at, restarted_after=at - 20, replaces=token(worker_id))


def steps(*each: Step) -> dict[str, Step]:
    return {one.worker_id: one for one in each}


# the plan


def test_the_plan_has_one_edit_for_all_that_it_serves(cluster: Any) -> None:
    plan = cluster.plan()
    assert [(edit.name, edit.workers) for edit in plan.edits] == [
        (SHARED, (W1, W2)),
        ("/etc/connect/w3.properties", (W3,)),
    ]
    assert plan.diff()[0] == f"--- {SHARED}  ({W1}, {W2})"
    assert sum(line.startswith("---") for line in plan.diff()) == 2
    assert f"`{SHARED}` serves `{W1}`, `{W2}`: the roll writes it once" in plan.markdown()
    assert Plan.from_dict(plan.to_dict()) == plan


def test_a_plan_without_a_shared_edit_says_nothing_of_sharing(cluster_in: Any) -> None:
    assert "written once" not in cluster_in(DISABLED).plan().markdown()


def test_workers_may_share_an_edit(cluster: Any) -> None:
    check = files(cluster.observe(), PREPARING)
    assert check.verdict is Verdict.PASS
    assert check.found == "2 edits for 3 workers, one group"


def test_workers_that_need_different_changes_of_one_edit_are_refused(cluster: Any) -> None:
    """A variable of its own may supply one worker's mode."""
    declared = replace(cluster.workers[W2].facts.declared, mode=PREPARING)
    check = files(cluster.facts(W2, declared=declared).observe(), PREPARING)
    assert check.verdict is Verdict.FAIL
    assert f"{W2} and {W1} share the file {SHARED} and need different changes of it" in check.found


# what a roll may have left of it


def test_a_worker_whose_file_was_written_for_another_is_rolled_in_its_turn(cluster: Any) -> None:
    plan = cluster.plan()
    cluster.roll(W1, PREPARING, at=NOW - 90)
    assert cluster.observe().worker(W2).facts.declared.mode is PREPARING, "the test would have nothing to find"
    actions = decide(plan, steps(step(W1, StepStatus.PASSED, NOW - 60)), cluster.observe())
    assert actions.kind is ActionKind.ROLL


def test_another_edit_of_it_is_a_conflict_for_whoever_it_serves(cluster: Any) -> None:
    plan = cluster.plan()
    cluster.roll(W1, PREPARING, at=NOW - 90).facts(W2, digest="edited")
    action = decide(plan, steps(step(W1, StepStatus.PASSED, NOW - 60)), cluster.observe())
    assert (action.kind, action.worker_id) == (ActionKind.REFUSE, W2)


def test_after_it_was_put_back_for_one_the_same_plan_goes_on(cluster: Any) -> None:
    """w1 is done and runs the new mode on; w2 failed, and the edit of both is as before."""
    plan = cluster.plan()
    cluster.roll(W1, PREPARING, at=NOW - 90).edit_file(W2, DISABLED)
    done = steps(step(W1, StepStatus.PASSED, NOW - 60), step(W2, StepStatus.RESTORED, NOW - 30))
    action = decide(plan, done, cluster.observe())
    assert action.kind is ActionKind.ROLL
    assert action.worker_id != W1, "it is done"
    cluster.edit_file(W2, PREPARING)
    action = decide(plan, done, cluster.observe())
    assert action.kind is ActionKind.REFUSE, "after the restore nobody of this roll has written it"


def test_a_leader_that_was_restarted_once_more_is_finished_after_the_edit_was_put_back_for_another(
    cluster: Any,
) -> None:
    """w1 was bounced during w2's gate, to end a rebalance delay; then w2 failed."""
    plan = cluster.plan()
    cluster.roll(W1, PREPARING, at=NOW - 90).edit_file(W2, DISABLED)
    done = steps(step(W1, StepStatus.RESTARTED, NOW - 60), step(W2, StepStatus.RESTORED, NOW - 30))
    action = decide(plan, done, cluster.observe())
    assert (action.kind, action.worker_id) == (ActionKind.ROLL, W1)


# what the gate expects


def modes_expected(plan: Plan, done: dict[str, Step], cluster: Any) -> Any:
    observation = cluster.observe()
    return expectation(plan, done, observation, Baseline.of(observation), W1)


def test_a_worker_that_comes_back_early_by_itself_may_run_what_its_edit_says(cluster: Any) -> None:
    plan = cluster.plan()
    done = steps(step(W1, StepStatus.RESTARTED, NOW - 20))
    cluster.roll(W1, PREPARING, at=NOW - 30)
    assert modes_expected(plan, done, cluster).modes == {W1: PREPARING, W2: DISABLED, W3: DISABLED}
    cluster.start(W2, at=NOW - 10)
    expected = modes_expected(plan, done, cluster)
    assert expected.modes == {W1: PREPARING, W2: PREPARING, W3: DISABLED}
    assert mode_condition(expected, cluster.observe()).passed


def test_a_worker_with_an_edit_of_its_own_may_not(cluster: Any) -> None:
    plan = cluster.plan()
    cluster.roll(W1, PREPARING, at=NOW - 30).prove(W3, ModeVerdict.PREPARING)
    expected = modes_expected(plan, steps(step(W1, StepStatus.RESTARTED, NOW - 20)), cluster)
    assert expected.modes[W3] is DISABLED


# what later looks make of it


def record_of(plan: Plan, state: RolloutState = RolloutState.DONE) -> RolloutRecord:
    return RolloutRecord("r1", plan.to_dict(), {}, state, started_at=1.0)


def test_what_one_workers_step_has_set_is_known_of_all_that_the_edit_serves(cluster_in: Any) -> None:
    before = cluster_in(DISABLED).share(W1, W2)
    plan = before.plan(PREPARING)
    cluster = cluster_in(PREPARING).share(W1, W2)
    done = steps(step(W1, StepStatus.PASSED, 5.0))
    content = JournalContent(rollouts={"r1": record_of(plan)}, steps={"r1": done})
    assert temporary_isolation(content, cluster.observe()) == {W1: Former(None), W2: Former(None)}
    done[W2] = step(W2, StepStatus.RESTORED, 9.0)
    assert temporary_isolation(content, cluster.observe()) == {}, "it was put back for both"


def rollout_of(plan: Plan, done: dict[str, Step], state: RolloutState = RolloutState.DONE) -> Rollout:
    return Rollout(record_of(plan, state), plan, done, events=(), request=None, lease=None)


def test_a_second_write_of_the_same_edit_is_no_drift_of_who_was_through(cluster: Any) -> None:
    """w1 passed, w2 failed, the edit was put back and written again for w2's second try: w1 is older than its file."""
    plan = cluster.plan()
    for worker_id in (W1, W2, W3):
        cluster.roll(worker_id, PREPARING, at=NOW - 90)
    cluster.edit_file(W2, PREPARING)
    done = {w: step(w, StepStatus.PASSED, NOW - 60) for w in (W1, W2, W3)}
    drift = find_drift(cluster.observe(), Expected.after(rollout_of(plan, done)))
    assert drift.findings == ()


def test_an_edit_that_nobody_meant_is_one_finding_for_all_that_it_serves(cluster: Any) -> None:
    plan = cluster.plan()
    for worker_id in (W1, W2, W3):
        cluster.roll(worker_id, PREPARING, at=NOW - 90)
    done = {w: step(w, StepStatus.PASSED, NOW - 60) for w in (W1, W2, W3)}
    cluster.edit_file(W1, DISABLED)
    drift = find_drift(cluster.observe(), Expected.after(rollout_of(plan, done)))
    (finding,) = drift.findings
    assert finding.kind is DriftKind.EDITED_FILE
    assert f"the file {SHARED} of {W1}, {W2} is not as rollout r1 has it" in finding.found
    assert MODE_PROPERTY not in finding.remedy
