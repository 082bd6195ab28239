"""What a roll does next, from a fresh start, on every way it may be taken up again, and on a conflict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.journal.journal import Step, StepStatus
from airflow_eos_provider.rollout.act.decision import Action, ActionKind, decide, expectation
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.plan.plan import ChangeKind, Plan, make_plan

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0

DISABLED, PREPARING, ENABLED = Mode.DISABLED, Mode.PREPARING, Mode.ENABLED
INTENT, RESTARTED, PASSED = StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.PASSED
FAILED, RESTORED = StepStatus.FAILED, StepStatus.RESTORED


LONG_AGO = NOW - 3_600.0


def step(
    worker_id: str,
    status: StepStatus,
    *,
    announced: float = NOW - 100,
    at: float = NOW - 80,
    replaces: float = LONG_AGO,
    failed: float = NOW - 90,
) -> Step:
    """Announced first, then (unless it is only that) seen to go further.

    :param replaces: start of the process that is replaced.
    :param failed: start of the process that did not pass, where one did not.
    """
    step = Step(worker_id, status, announced if status is INTENT else at, restarted_after=announced)
    tokens = {"replaces": token(worker_id, replaces)}
    if status is FAILED:
        tokens["failed_process"] = token(worker_id, failed)
    return replace(step, **tokens)


def token(worker_id: str, started_at: float) -> str:
    """What stands for the start token of a process in this room's ``conftest.py``."""
    return f"{worker_id} started at {started_at}"


def rolled(cluster: Any) -> Any:
    """W2 is restarted in the new mode."""
    return cluster.roll(W2, PREPARING, at=NOW - 90)


def done(*steps: Step) -> dict[str, Step]:
    return {each.worker_id: each for each in steps}


class Roll:
    """A roll from disabled to preparing, with what the journal says of it."""

    def __init__(self, cluster: Any, target: Mode = PREPARING) -> None:
        self.cluster = cluster
        self.plan: Plan = cluster.plan(target)

    def next(self, *steps: Step) -> Action:
        return decide(self.plan, done(*steps), self.cluster.observe())

    def kind(self, *steps: Step) -> tuple[ActionKind, str]:
        action = self.next(*steps)
        assert action.reason, "whatever is done, the log says why"
        return action.kind, action.worker_id


@pytest.fixture
def roll(cluster: Any) -> Roll:
    return Roll(cluster)


# from a fresh start


def test_the_leader_of_the_moment_goes_first(roll: Roll) -> None:
    roll.cluster.leader = W3
    assert roll.next() == Action(ActionKind.ROLL, W3, "it leads the group")
    roll.cluster.roll(W3, PREPARING, at=NOW - 90)
    assert roll.next(step(W3, PASSED)) == Action(ActionKind.ROLL, W1, "none of the pending workers leads")


def test_done_when_every_worker_is_through(roll: Roll) -> None:
    for worker_id in (W1, W2, W3):
        roll.cluster.roll(worker_id, PREPARING, at=NOW - 90)
    action = roll.next(*(step(w, PASSED) for w in (W1, W2, W3)))
    assert action == Action(ActionKind.DONE, reason="every worker runs preparing")


def test_a_stopped_worker_is_not_said_to_run(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2).stop(W3))
    for worker_id in (W2, W3):
        cluster.edit_file(worker_id, PREPARING)
    cluster.roll(W1, PREPARING, at=NOW - 90)
    action = roll.next(*(step(w, PASSED) for w in (W1, W2, W3)))
    assert action.kind is ActionKind.DONE
    assert action.reason.startswith(f"every worker that runs is in preparing; {W2}, {W3} are stopped")


def test_a_roll_is_not_done_while_a_worker_has_stopped_after_its_gate(roll: Roll) -> None:
    for worker_id in (W1, W2, W3):
        roll.cluster.roll(worker_id, PREPARING, at=NOW - 90)
    roll.cluster.stop(W2)
    action = roll.next(*(step(w, PASSED) for w in (W1, W2, W3)))
    assert (action.kind, action.worker_id, action.may_pass) == (ActionKind.PAUSE, W2, True)


def test_a_worker_that_is_there_already_is_left_alone(cluster: Any) -> None:
    roll = Roll(cluster.roll(W1, PREPARING, at=NOW - 900))
    assert roll.plan.change(W1).kind is ChangeKind.NONE
    assert roll.kind() == (ActionKind.ROLL, W3)


def test_nothing_is_done_where_nothing_is_to_do(cluster_in: Any) -> None:
    assert Roll(cluster_in(PREPARING)).kind() == (ActionKind.DONE, "")


def test_a_worker_whose_file_is_newer_than_its_process_is_restarted(cluster_in: Any) -> None:
    """The file says preparing already, the process runs disabled: the digest stays, the restart is due."""
    cluster = cluster_in(PREPARING).edit_file(W2, DISABLED).start(W2, at=NOW - 900).edit_file(W2, PREPARING)
    roll = Roll(cluster)
    assert roll.plan.change(W2).kind is ChangeKind.ROLL
    assert roll.kind() == (ActionKind.ROLL, W2)


# stopped workers


def test_a_stopped_workers_file_is_changed_before_any_restart(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    assert roll.plan.change(W2).kind is ChangeKind.FILE_ONLY
    assert roll.kind() == (ActionKind.CHANGE_FILE, W2)


def test_a_stopped_workers_file_that_was_not_confirmed_is_changed_again(cluster: Any) -> None:
    """Killed between the announcement and the confirmation: the write is done again, whether it had happened or not."""
    roll = Roll(cluster.stop(W2))
    assert roll.kind(step(W2, INTENT)) == (ActionKind.CHANGE_FILE, W2)
    cluster.edit_file(W2, PREPARING)
    assert roll.kind(step(W2, INTENT)) == (ActionKind.CHANGE_FILE, W2)


def test_after_the_stopped_workers_the_running_ones_follow(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    cluster.edit_file(W2, PREPARING)
    assert roll.kind(step(W2, PASSED)) == (ActionKind.ROLL, W1)


def test_a_stopped_worker_that_was_started_before_its_file_was_changed_pauses(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    cluster.start(W2, at=NOW - 5, mode=DISABLED)
    assert roll.kind() == (ActionKind.PAUSE, W2)
    assert "has been started since" in roll.next().reason


def test_a_stopped_worker_that_joins_in_the_new_mode_is_welcome(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    cluster.edit_file(W2, PREPARING).start(W2, at=NOW - 5)
    assert roll.kind(step(W2, PASSED)) == (ActionKind.ROLL, W1)


def test_a_worker_that_has_stopped_since_the_plan_pauses(roll: Roll) -> None:
    roll.cluster.stop(W2)
    assert roll.kind() == (ActionKind.PAUSE, W2)
    assert "has stopped since" in roll.next().reason


# taken up again

#: What has become of the cluster since the plan, what the journal has of w2, and what is done next.
TAKEN_UP: dict[str, tuple[Any, Step, ActionKind, str]] = {
    "killed after the announcement": (lambda c: c, step(W2, INTENT), ActionKind.ROLL, W2),
    "begun, and another leads": (lambda c: setattr(c, "leader", W3), step(W2, INTENT), ActionKind.ROLL, W2),
    "killed after the write": (lambda c: c.edit_file(W2, PREPARING), step(W2, INTENT), ActionKind.RESTART, W2),
    "killed between stop and start": (
        lambda c: c.edit_file(W2, PREPARING).stop(W2),
        step(W2, INTENT),
        ActionKind.RESTART,
        W2,
    ),
    "killed after the restart": (rolled, step(W2, INTENT), ActionKind.GATE, W2),
    "killed at the gate": (rolled, step(W2, RESTARTED), ActionKind.GATE, W2),
    "a rebalance after the restart": (lambda c: rolled(c).rebalancing(), step(W2, RESTARTED), ActionKind.GATE, W2),
    # the clock was set back between the announcement and the start, or is another machine's
    "a process older than the announcement": (
        lambda c: c.roll(W2, PREPARING, at=NOW - 5_000),
        step(W2, INTENT),
        ActionKind.GATE,
        W2,
    ),
    "died after the restart": (lambda c: rolled(c).stop(W2), step(W2, RESTARTED), ActionKind.RESTART, W2),
    "killed after the failed gate": (rolled, step(W2, FAILED), ActionKind.RESTORE, W2),
    # the process still runs what the failed file said
    "killed after the file was put back": (
        lambda c: rolled(c).edit_file(W2, DISABLED),
        step(W2, FAILED),
        ActionKind.RESTORE,
        W2,
    ),
    "killed while the failed worker was down": (lambda c: c.stop(W2), step(W2, FAILED), ActionKind.RESTORE, W2),
    "restarted by hand with the failed file": (
        lambda c: c.roll(W2, PREPARING, at=NOW - 10),
        step(W2, FAILED),
        ActionKind.RESTORE,
        W2,
    ),
    # it could not be stopped, say: what failed is what ran before
    "failed with its old process on its old file": (
        lambda c: setattr(c, "leader", W2),
        step(W2, FAILED, failed=LONG_AGO),
        ActionKind.ROLL,
        W2,
    ),
    # its file could not be written, say; its process is the old one
    "failed before anything was done to it": (
        lambda c: setattr(c, "leader", W2),
        step(W2, FAILED),
        ActionKind.ROLL,
        W2,
    ),
    "killed before the restoration was confirmed": (
        lambda c: c.start(W2, at=NOW - 70),
        step(W2, FAILED),
        ActionKind.ROLL,
        W1,
    ),
    "restored": (lambda c: c.start(W1, at=NOW - 70), step(W1, RESTORED), ActionKind.ROLL, W1),
    "through": (lambda c: c.roll(W1, PREPARING, at=NOW - 90), step(W1, PASSED), ActionKind.ROLL, W3),
}


@pytest.mark.parametrize("what", TAKEN_UP)
def test_what_was_begun_is_finished_first(roll: Roll, what: str) -> None:
    change, before, kind, worker_id = TAKEN_UP[what]
    change(roll.cluster)
    assert roll.kind(before) == (kind, worker_id)


def test_where_only_a_restart_was_due_there_is_no_file_to_put_back(cluster_in: Any) -> None:
    cluster = cluster_in(PREPARING).edit_file(W2, DISABLED).start(W2, at=NOW - 900).edit_file(W2, PREPARING)
    roll = Roll(cluster)
    cluster.start(W2, at=NOW - 90)
    assert roll.kind(step(W2, FAILED)) == (ActionKind.ROLL, W2)


def test_what_was_begun_is_finished_before_a_stopped_workers_file_is_changed(cluster: Any) -> None:
    roll = Roll(cluster.stop(W3))
    cluster.roll(W2, PREPARING, at=NOW - 90)
    assert roll.kind(step(W2, RESTARTED)) == (ActionKind.GATE, W2)


@pytest.mark.parametrize("leader_first", [True, False])
def test_a_restart_that_was_only_announced_is_done_before_anothers_gate_is_waited_for(
    roll: Roll, leader_first: bool
) -> None:
    """Killed while the leader was restarted once more in w2's gate; the journal keeps no order between the two."""
    roll.cluster.roll(W1, PREPARING, at=NOW - 190).roll(W2, PREPARING, at=NOW - 90)
    steps = [step(W1, INTENT, announced=NOW - 10, replaces=NOW - 190), step(W2, RESTARTED)]
    assert roll.kind(*(steps if leader_first else reversed(steps))) == (ActionKind.RESTART, W1)


# conflicts


def test_an_unknown_member_of_the_group_pauses(roll: Roll) -> None:
    roll.cluster.join("w9:8083")
    assert roll.next().kind is ActionKind.PAUSE
    assert "w9:8083" in roll.next().reason


def test_a_member_that_was_described_after_the_plan_was_made_pauses(roll: Roll) -> None:
    newcomer = replace(roll.cluster.workers[W3].worker, url="http://w9:8083")
    roll.cluster.join("w9:8083").workers["w9:8083"] = replace(roll.cluster.workers[W3], worker=newcomer)
    assert roll.next().kind is ActionKind.PAUSE
    assert "w9:8083" in roll.next().reason


def test_a_planned_worker_that_is_no_longer_described_pauses(roll: Roll) -> None:
    del roll.cluster.workers[W3]
    for steps in ((), (step(W3, RESTARTED),)):
        action = roll.next(*steps)
        assert (action.kind, action.worker_id) == (ActionKind.PAUSE, W3)
        assert f"{W3} is part of the plan and no longer described: add them to the cluster file" in action.reason


def test_a_worker_that_is_not_described_has_no_observation(roll: Roll) -> None:
    """An error that a future can carry, unlike the end of an iteration."""
    with pytest.raises(ConfigurationError, match="w9:8083"):
        roll.cluster.observe().worker("w9:8083")


def test_a_rebalance_makes_no_member_unknown(roll: Roll) -> None:
    roll.cluster.rebalancing()
    assert roll.next().kind is ActionKind.ROLL


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        (lambda c: c.facts(W1, digest="edited"), ()),
        (lambda c: c.facts(W3, digest="edited"), ()),
        # nothing was announced, so there is no backup that a failing gate could put back
        (lambda c: c.edit_file(W2, PREPARING), ()),
        (lambda c: rolled(c).edit_file(W2, DISABLED), (step(W2, RESTARTED),)),
        (lambda c: rolled(c).edit_file(W2, DISABLED), (step(W2, PASSED),)),
        (lambda c: rolled(c).facts(W2, digest="edited"), (step(W2, RESTARTED),)),
    ],
    ids=["edited", "another", "changed as planned", "put back at its gate", "put back after it", "in the middle"],
)
def test_a_file_that_was_changed_elsewhere_is_refused(roll: Roll, change: Any, steps: tuple[Step, ...]) -> None:
    change(roll.cluster)
    assert roll.kind(*steps)[0] is ActionKind.REFUSE


def test_an_edited_file_of_a_worker_that_needs_no_change_is_refused(cluster: Any) -> None:
    roll = Roll(cluster.roll(W1, PREPARING, at=NOW - 900))
    cluster.facts(W1, digest="edited")
    assert roll.kind() == (ActionKind.REFUSE, W1)


def test_a_file_that_each_start_writes_anew_is_named_as_that(roll: Roll) -> None:
    obstacle = Obstacle("change", "each start writes it (ExecStartPre=render)", "change the template")
    roll.cluster.facts(W2, digest="edited", obstacles=(obstacle,))
    assert roll.next().reason.endswith("from this roll's own changes: each start writes it (ExecStartPre=render)")


def test_a_file_that_cannot_be_read_pauses(roll: Roll) -> None:
    roll.cluster.facts(W2, digest=None, problem="w2.properties is not readable")
    assert roll.kind() == (ActionKind.PAUSE, W2)
    assert "not readable" in roll.next().reason


# what the gate holds the cluster against


@pytest.mark.parametrize(
    ("steps", "worker_id", "modes"),
    [
        ((), None, {W1: DISABLED, W2: DISABLED, W3: DISABLED}),
        ((step(W1, PASSED),), W2, {W1: PREPARING, W2: PREPARING, W3: DISABLED}),
        ((step(W1, RESTORED),), W2, {W1: DISABLED, W2: PREPARING, W3: DISABLED}),
        # the leader was restarted once more to end a rebalance delay (order.py): two workers are under way
        ((step(W1, RESTARTED), step(W2, RESTARTED)), W2, {W1: PREPARING, W2: PREPARING, W3: DISABLED}),
        # killed in the middle of that: the leader may run either, and its own gate will ask
        ((step(W2, RESTARTED), step(W1, INTENT)), W2, {W2: PREPARING, W3: DISABLED}),
        ((step(W2, INTENT),), W2, {W1: DISABLED, W2: PREPARING, W3: DISABLED}),
    ],
)
def test_the_modes_are_expected_as_far_as_the_roll_has_come(
    roll: Roll, steps: tuple[Step, ...], worker_id: str | None, modes: dict[str, Mode]
) -> None:
    expected = expectation(roll.plan, done(*steps), roll.cluster.observe(), Baseline(), worker_id)
    assert (expected.modes, expected.worker_id) == (modes, worker_id)
    assert expected.members == {W1, W2, W3}
    assert expected.digest == (roll.plan.change(W2).config_after if worker_id else None)


def test_the_process_must_be_younger_than_the_announcement(roll: Roll) -> None:
    steps = done(step(W2, RESTARTED, announced=NOW - 33))
    assert expectation(roll.plan, steps, roll.cluster.observe(), Baseline(), W2).restarted_after == NOW - 33


def test_a_stopped_worker_is_not_expected_in_the_group(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    expected = expectation(roll.plan, {}, cluster.observe(), Baseline())
    assert expected.members == {W1, W3}
    assert W2 not in expected.modes


def test_a_stopped_worker_that_joins_is_expected_in_the_new_mode(cluster: Any) -> None:
    roll = Roll(cluster.stop(W2))
    cluster.edit_file(W2, PREPARING).start(W2, at=NOW - 5)
    expected = expectation(roll.plan, done(step(W2, PASSED)), cluster.observe(), Baseline())
    assert expected.members == {W1, W2, W3}
    assert expected.modes[W2] is PREPARING


def test_a_stopped_worker_whose_file_said_so_already_is_expected_in_the_new_mode(cluster: Any) -> None:
    roll = Roll(cluster.edit_file(W2, PREPARING).stop(W2))
    cluster.start(W2, at=NOW - 5)
    assert expectation(roll.plan, {}, cluster.observe(), Baseline()).modes[W2] is PREPARING


def test_a_running_worker_that_has_left_the_group_is_still_expected(roll: Roll) -> None:
    roll.cluster.leave(W2)
    assert expectation(roll.plan, {}, roll.cluster.observe(), Baseline()).members == {W1, W2, W3}


def test_of_a_worker_whose_mode_was_unknown_none_is_expected(cluster: Any) -> None:
    roll = Roll(cluster.prove(W2, ModeVerdict.UNKNOWN))
    assert expectation(roll.plan, {}, cluster.observe(), Baseline()).modes == {W1: DISABLED, W3: DISABLED}


def test_a_worker_that_is_there_already_is_expected_to_stay_there(cluster: Any) -> None:
    roll = Roll(cluster.roll(W1, PREPARING, at=NOW - 900))
    assert expectation(roll.plan, {}, cluster.observe(), Baseline()).modes[W1] is PREPARING


# workers that a roll left down


class LeftDown(Roll):
    """w2 and w3 were left down by rollout r1; w1 runs."""

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster.stop(W2).stop(W3))
        digests = {change.worker_id: change.config_after for change in self.plan.workers}
        self.plan = make_plan(cluster.observe(), PREPARING, digests, left_down={W2: "r1", W3: "r1"})


def test_what_a_roll_left_down_is_started_before_any_other_worker_is_restarted(cluster: Any) -> None:
    roll = LeftDown(cluster)
    assert roll.next() == Action(ActionKind.ROLL, W2, "rollout r1 left it down")
    roll.cluster.roll(W2, PREPARING, at=NOW - 90)
    assert roll.kind(step(W2, PASSED)) == (ActionKind.ROLL, W3)
    roll.cluster.roll(W3, PREPARING, at=NOW - 90)
    assert roll.kind(step(W2, PASSED), step(W3, PASSED)) == (ActionKind.ROLL, W1)


def test_the_gate_of_a_started_worker_asks_for_it_and_not_for_one_that_is_still_down(cluster: Any) -> None:
    roll = LeftDown(cluster)
    steps = done(replace(step(W2, RESTARTED), replaces=""))
    expected = expectation(roll.plan, steps, roll.cluster.observe(), Baseline(), W2)
    assert expected.members == {W1, W2}
