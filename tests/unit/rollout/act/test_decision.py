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
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, make_plan
from tests.unit.rollout.conftest import DISABLED, FOREIGN, LONG_AGO, NOW, PREPARING, W1, W2, W3, Cluster, token

INTENT, RESTARTED, PASSED = StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.PASSED
FAILED, RESTORED = StepStatus.FAILED, StepStatus.RESTORED

CHANGE_FILE, ROLL, RESTART, GATE = ActionKind.CHANGE_FILE, ActionKind.ROLL, ActionKind.RESTART, ActionKind.GATE
RESTORE, REFUSE, PAUSE, DONE = ActionKind.RESTORE, ActionKind.REFUSE, ActionKind.PAUSE, ActionKind.DONE


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
    failed_process = {"failed_process": token(worker_id, failed)} if status is FAILED else {}
    return replace(step, replaces=token(worker_id, replaces), **failed_process)


def rolled(cluster: Any, *worker_ids: str) -> Any:
    """These, or W2, are restarted in the new mode."""
    for worker_id in worker_ids or (W2,):
        cluster.roll(worker_id, PREPARING, at=NOW - 90)
    return cluster


ALL_PASSED = tuple(step(worker_id, PASSED) for worker_id in (W1, W2, W3))


def done(*steps: Step) -> dict[str, Step]:
    return {each.worker_id: each for each in steps}


class Roll:
    """A roll to preparing, with what the journal says of it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.plan: Plan = cluster.plan(PREPARING)

    def next(self, *steps: Step) -> Action:
        action = decide(self.plan, done(*steps), self.cluster.observe())
        assert action.reason, "whatever is done, the log says why"
        return action

    def kind(self, *steps: Step) -> tuple[ActionKind, str]:
        action = self.next(*steps)
        return action.kind, action.worker_id

    def expected(self, *steps: Step, worker_id: str | None = None) -> Expectation:
        return expectation(self.plan, done(*steps), self.cluster.observe(), Baseline(), worker_id)


@pytest.fixture
def roll(cluster: Any) -> Roll:
    return Roll(cluster)


def nothing(cluster: Any) -> Any:
    return cluster


def older_process(cluster: Any) -> Any:
    """The file of w2 says preparing already, its process runs disabled: the digest stays, the restart is due."""
    return cluster.edit_file(W2, DISABLED).start(W2, at=NOW - 900).edit_file(W2, PREPARING)


def described_later(cluster: Any) -> None:
    """A member that was described after the plan was made."""
    newcomer = replace(cluster.workers[W3].worker, url=f"http://{FOREIGN}")
    cluster.join(FOREIGN).workers[FOREIGN] = replace(cluster.workers[W3], worker=newcomer)


def each_start_writes(cluster: Any) -> None:
    obstacle = Obstacle("change", "each start writes it (ExecStartPre=render)", "change the template")
    cluster.facts(W2, digest="edited", obstacles=(obstacle,))


@pytest.mark.parametrize(
    ("mode", "before", "since", "steps", "kind", "worker_id", "reason"),
    [
        # the current leader goes first
        (DISABLED, nothing, lambda c: setattr(c, "leader", W3), (), ROLL, W3, "it leads the group"),
        (
            DISABLED,
            nothing,
            lambda c: vars(rolled(c, W3)).update(leader=W3),
            (step(W3, PASSED),),
            ROLL,
            W1,
            "none of the pending workers leads",
        ),
        (DISABLED, nothing, lambda c: rolled(c, W1, W2, W3), ALL_PASSED, DONE, "", "every worker runs preparing"),
        (PREPARING, nothing, nothing, (), DONE, "", "every worker runs preparing"),
        (DISABLED, lambda c: rolled(c, W1), nothing, (), ROLL, W3, ""),  # w1 is there already
        (PREPARING, older_process, nothing, (), ROLL, W2, ""),
        # not done while a worker has stopped after its gate, nor is one said to run that was stopped before
        (DISABLED, nothing, lambda c: rolled(c, W1, W2, W3).stop(W2), ALL_PASSED, PAUSE, W2, "has stopped since"),
        (
            DISABLED,
            lambda c: c.stop(W2).stop(W3),
            lambda c: rolled(c.edit_file(W2, PREPARING).edit_file(W3, PREPARING), W1),
            ALL_PASSED,
            DONE,
            "",
            f"every worker that runs is in preparing; {W2}, {W3} are stopped",
        ),
        # a stopped worker's file is changed before any restart, and again where that was not confirmed
        (DISABLED, lambda c: c.stop(W2), nothing, (), CHANGE_FILE, W2, ""),
        (DISABLED, lambda c: c.stop(W2), nothing, (step(W2, INTENT),), CHANGE_FILE, W2, ""),
        (
            DISABLED,
            lambda c: c.stop(W2),
            lambda c: c.edit_file(W2, PREPARING),
            (step(W2, INTENT),),
            CHANGE_FILE,
            W2,
            "",
        ),
        (DISABLED, lambda c: c.stop(W2), lambda c: c.edit_file(W2, PREPARING), (step(W2, PASSED),), ROLL, W1, ""),
        (
            DISABLED,
            lambda c: c.stop(W2),
            lambda c: c.edit_file(W2, PREPARING).start(W2, at=NOW - 5),
            (step(W2, PASSED),),
            ROLL,
            W1,
            "",
        ),
        (
            DISABLED,
            lambda c: c.stop(W2),
            lambda c: c.start(W2, at=NOW - 5, mode=DISABLED),
            (),
            PAUSE,
            W2,
            "has been started since",
        ),
        (DISABLED, nothing, lambda c: c.stop(W2), (), PAUSE, W2, "has stopped since"),
        # what was begun comes before a stopped worker's file; where only a restart was due, no file is put back
        (DISABLED, lambda c: c.stop(W3), rolled, (step(W2, RESTARTED),), GATE, W2, ""),
        (PREPARING, older_process, lambda c: c.start(W2, at=NOW - 90), (step(W2, FAILED),), ROLL, W2, ""),
        # conflicts
        (DISABLED, nothing, lambda c: c.join(FOREIGN), (), PAUSE, "", f"member {FOREIGN} has joined"),
        (DISABLED, nothing, described_later, (), PAUSE, "", f"member {FOREIGN} has joined"),
        (DISABLED, nothing, lambda c: c.rebalancing(), (), ROLL, W1, ""),  # makes no member unknown
        *(
            (
                DISABLED,
                nothing,
                lambda c: c.workers.pop(W3),
                steps,
                PAUSE,
                W3,
                f"{W3} is part of the plan and no longer described: add them to the cluster file",
            )
            for steps in ((), (step(W3, RESTARTED),))
        ),
        (
            DISABLED,
            nothing,
            lambda c: c.facts(W2, digest=None, problem="w2.properties is not readable"),
            (),
            PAUSE,
            W2,
            "not readable",
        ),
        # a file that was changed elsewhere
        (DISABLED, nothing, lambda c: c.facts(W1, digest="edited"), (), REFUSE, W1, "own changes: it was edited"),
        (DISABLED, nothing, lambda c: c.facts(W3, digest="edited"), (), REFUSE, W3, ""),
        (DISABLED, lambda c: rolled(c, W1), lambda c: c.facts(W1, digest="edited"), (), REFUSE, W1, ""),
        # as planned, but nothing was announced, so there is no backup that a failing gate could put back
        (DISABLED, nothing, lambda c: c.edit_file(W2, PREPARING), (), REFUSE, W2, ""),
        *(
            (DISABLED, nothing, lambda c: rolled(c).edit_file(W2, DISABLED), (step(W2, status),), REFUSE, W2, "")
            for status in (RESTARTED, PASSED)
        ),
        (DISABLED, nothing, lambda c: rolled(c).facts(W2, digest="edited"), (step(W2, RESTARTED),), REFUSE, W2, ""),
        (DISABLED, nothing, each_start_writes, (), REFUSE, W2, "own changes: each start writes it (ExecStartPre=ren"),
    ],
)
def test_what_is_done_next(
    mode: Mode,
    before: Any,
    since: Any,
    steps: tuple[Step, ...],
    kind: ActionKind,
    worker_id: str,
    reason: str,
) -> None:
    """By the cluster when the plan was made, what has become of it since, and what the journal has."""
    roll = Roll(before(Cluster(mode)))
    since(roll.cluster)
    action = roll.next(*steps)
    assert (action.kind, action.worker_id) == (kind, worker_id)
    assert reason in action.reason
    assert action.may_pass is (kind is PAUSE and ("not readable" in reason or steps == ALL_PASSED))


@pytest.mark.parametrize(
    ("change", "before", "kind", "worker_id"),
    [
        # killed after the announcement (perhaps another leads now), after the write, between stop and start
        (nothing, step(W2, INTENT), ROLL, W2),
        (lambda c: setattr(c, "leader", W3), step(W2, INTENT), ROLL, W2),
        (lambda c: c.edit_file(W2, PREPARING), step(W2, INTENT), RESTART, W2),
        (lambda c: c.edit_file(W2, PREPARING).stop(W2), step(W2, INTENT), RESTART, W2),
        # killed after the restart, at the gate, in a rebalance
        (rolled, step(W2, INTENT), GATE, W2),
        (rolled, step(W2, RESTARTED), GATE, W2),
        (lambda c: rolled(c).rebalancing(), step(W2, RESTARTED), GATE, W2),
        # the clock was set back between the announcement and the start, or is another machine's
        (lambda c: c.roll(W2, PREPARING, at=NOW - 5_000), step(W2, INTENT), GATE, W2),
        # died after the restart
        (lambda c: rolled(c).stop(W2), step(W2, RESTARTED), RESTART, W2),
        # killed after the failed gate; after the file was put back, while the process runs what the failed file said
        (rolled, step(W2, FAILED), RESTORE, W2),
        (lambda c: rolled(c).edit_file(W2, DISABLED), step(W2, FAILED), RESTORE, W2),
        # killed while the failed worker was down; restarted by hand with the failed file
        (lambda c: c.stop(W2), step(W2, FAILED), RESTORE, W2),
        (lambda c: c.roll(W2, PREPARING, at=NOW - 10), step(W2, FAILED), RESTORE, W2),
        # it could not be stopped, say: what failed is what ran before
        (lambda c: setattr(c, "leader", W2), step(W2, FAILED, failed=LONG_AGO), ROLL, W2),
        # failed before anything was done to it: its file could not be written, say; its process is the old one
        (lambda c: setattr(c, "leader", W2), step(W2, FAILED), ROLL, W2),
        # killed before the restoration was confirmed; restored; through
        (lambda c: c.start(W2, at=NOW - 70), step(W2, FAILED), ROLL, W1),
        (lambda c: c.start(W1, at=NOW - 70), step(W1, RESTORED), ROLL, W1),
        (lambda c: c.roll(W1, PREPARING, at=NOW - 90), step(W1, PASSED), ROLL, W3),
    ],
)
def test_what_was_begun_is_finished_first(
    roll: Roll, change: Any, before: Step, kind: ActionKind, worker_id: str
) -> None:
    change(roll.cluster)
    assert roll.kind(before) == (kind, worker_id)


@pytest.mark.parametrize("leader_first", [True, False])
def test_a_restart_that_was_only_announced_is_done_before_anothers_gate_is_waited_for(
    roll: Roll, leader_first: bool
) -> None:
    """Killed while the leader was restarted once more in w2's gate; the journal keeps no order between the two."""
    roll.cluster.roll(W1, PREPARING, at=NOW - 190).roll(W2, PREPARING, at=NOW - 90)
    steps = [step(W1, INTENT, announced=NOW - 10, replaces=NOW - 190), step(W2, RESTARTED)]
    assert roll.kind(*(steps if leader_first else reversed(steps))) == (RESTART, W1)


def test_a_worker_that_is_not_described_has_no_observation(roll: Roll) -> None:
    """An error that a future can carry, unlike the end of an iteration."""
    with pytest.raises(ConfigurationError, match="w9:8083"):
        roll.cluster.observe().worker("w9:8083")


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
    expected = roll.expected(*steps, worker_id=worker_id)
    assert (expected.modes, expected.worker_id) == (modes, worker_id)
    assert expected.members == {W1, W2, W3}
    assert expected.digest == (roll.plan.change(W2).config_after if worker_id else None)


def test_the_process_must_be_younger_than_the_announcement(roll: Roll) -> None:
    expected = roll.expected(step(W2, RESTARTED, announced=NOW - 33), worker_id=W2)
    assert expected.restarted_after == NOW - 33


@pytest.mark.parametrize(
    ("before", "since", "steps", "members", "mode"),
    [
        (lambda c: c.stop(W2), nothing, (), {W1, W3}, None),
        # one that joins is expected in the new mode, also where its file said so already
        (
            lambda c: c.stop(W2),
            lambda c: c.edit_file(W2, PREPARING).start(W2, at=NOW - 5),
            (step(W2, PASSED),),
            {W1, W2, W3},
            PREPARING,
        ),
        (
            lambda c: c.edit_file(W2, PREPARING).stop(W2),
            lambda c: c.start(W2, at=NOW - 5),
            (),
            {W1, W2, W3},
            PREPARING,
        ),
        (nothing, lambda c: c.leave(W2), (), {W1, W2, W3}, DISABLED),  # it still runs
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), nothing, (), {W1, W2, W3}, None),
        (rolled, nothing, (), {W1, W2, W3}, PREPARING),  # it is there already
    ],
)
def test_who_is_expected_in_which_mode_before_a_restart(
    cluster: Any, before: Any, since: Any, steps: tuple[Step, ...], members: set[str], mode: Mode | None
) -> None:
    roll = Roll(before(cluster))
    since(cluster)
    expected = roll.expected(*steps)
    assert (expected.members, expected.modes.get(W2)) == (members, mode)


# workers that a roll left down


class LeftDown(Roll):
    """w2 and w3 were left down by rollout r1; w1 runs."""

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster.stop(W2).stop(W3))
        digests = {change.worker_id: change.config_after for change in self.plan.workers}
        self.plan = make_plan(cluster.observe(), PREPARING, digests, left_down={W2: "r1", W3: "r1"})


def test_what_a_roll_left_down_is_started_before_any_other_worker_is_restarted(cluster: Any) -> None:
    roll = LeftDown(cluster)
    assert roll.plan.change(W2).kind is ChangeKind.START
    assert roll.next() == Action(ROLL, W2, "rollout r1 left it down")
    rolled(cluster, W2)
    assert roll.kind(step(W2, PASSED)) == (ROLL, W3)
    rolled(cluster, W3)
    assert roll.kind(step(W2, PASSED), step(W3, PASSED)) == (ROLL, W1)


def test_the_gate_of_a_started_worker_asks_for_it_and_not_for_one_that_is_still_down(cluster: Any) -> None:
    roll = LeftDown(cluster)
    assert roll.expected(replace(step(W2, RESTARTED), replaces=""), worker_id=W2).members == {W1, W2}
