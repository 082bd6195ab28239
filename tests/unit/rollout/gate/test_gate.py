"""The hold, the three answers, and the task downtime."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Running
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.rollout.answer import failed, inconclusive, passed
from airflow_eos_provider.rollout.gate import gate as module
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.gate.gate import GateAnswer, connectors_to_restart
from airflow_eos_provider.rollout.gate.state import DelayClock, GateState, Hold
from tests.unit.rollout.conftest import ENABLED, FOREIGN, NOW, PREPARING, W1, W2, W3, Gate

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
DEADLINE = NOW + 60.0


class Watch:
    """One gate being waited for, look by look: three polls over five seconds, given up after a minute."""

    def __init__(self, gate: Gate, **changes: Any) -> None:
        self.of = gate
        self.cluster = gate.cluster
        values = {"deadline": DEADLINE, "latest_deadline": DEADLINE, "tasks": ("mirror/1", "sink/0"), **changes}
        self.gate = GateState(
            **{"rollout_id": "r1", "worker_id": W2, "restart_id": 1.0, "polls": 3, "hold_seconds": 5.0, **values}
        )
        self.answer = GateAnswer((), None)

    def poll(self, *seconds: float, took: float = 0.0) -> list[Verdict | None]:
        """Looks so many seconds after :data:`NOW`, each of which took so long until then; what each answers."""
        verdicts = []
        for second in seconds:
            observation = replace(self.cluster.observe(at=NOW + second), took_seconds=took)
            self.gate, self.answer = module.poll(self.gate, self.of.expected(), observation)
            verdicts.append(self.answer.verdict)
        return verdicts

    def open_checks(self) -> list[str]:
        return [check.subject for check in self.answer.open_checks]

    def downtime(self) -> float:
        """Of the tasks, whose restart was announced 30 seconds before :data:`NOW`."""
        return self.gate.downtime_seconds(NOW - 30.0)


@pytest.fixture
def watch(gate: Gate) -> Watch:
    return Watch(gate)


# the hold


@pytest.mark.parametrize(
    ("seconds", "answers"),
    [
        ((0, 3, 6), [None, None, PASS]),
        ((*(tenth / 10 for tenth in range(10)), 5.0), [None] * 10 + [PASS]),  # enough polls in too short a time
        ((0, 20), [None, None]),  # enough time with too few polls
        ((59, 62, 65), [None, None, PASS]),  # a hold under way at the deadline may come to its end
    ],
)
def test_the_gate_passes_when_all_conditions_held_for_enough_polls_and_enough_time(
    watch: Watch, seconds: tuple[float, ...], answers: list[Verdict | None]
) -> None:
    assert watch.poll(*seconds) == answers


def test_the_gate_between_preparing_and_enabled_asks_for_the_same_hold() -> None:
    assert Watch(Gate(target=ENABLED, current=PREPARING)).poll(0, 3, 6) == [None, None, PASS]


def test_one_bad_poll_starts_the_count_anew(watch: Watch) -> None:
    assert watch.poll(0, 3) == [None, None]
    watch.cluster.task("mirror", 1, state="UNASSIGNED")
    assert watch.poll(6) == [None]
    watch.cluster.task("mirror", 1, state="RUNNING")
    assert watch.poll(9, 12, 15) == [None, None, PASS]


def test_a_condition_is_true_since_the_look_from_which_on_it_has_held(watch: Watch) -> None:
    watch.cluster.task("mirror", 1, state="UNASSIGNED")
    watch.poll(0)
    (open_now,) = watch.open_checks()
    held_now = set(watch.gate.true_since)
    assert open_now not in held_now
    watch.cluster.task("mirror", 1, state="RUNNING")
    watch.poll(3, 6)
    assert watch.gate.true_since == {**dict.fromkeys(held_now, NOW), open_now: NOW + 3}
    watch.cluster.task("mirror", 1, state="UNASSIGNED")
    watch.poll(9)
    assert open_now not in watch.gate.true_since


def test_a_gate_that_an_earlier_version_has_handed_over_is_taken_up(watch: Watch) -> None:
    watch.poll(0)
    assert watch.gate.true_since
    document = json.loads(json.dumps(watch.gate.to_dict()))
    del document["true_since"]
    assert GateState.from_dict(document) == replace(watch.gate, true_since={})


def moved_connector(cluster: Any) -> None:
    cluster.placed[W2][0].discard("sink")
    cluster.placed[W3][0].add("sink")
    cluster.status("sink", worker_id=W3)


@pytest.mark.parametrize(
    "move",
    [
        lambda c: c.place(("mirror", 1), W3).task("mirror", 1, worker_id=W3),
        moved_connector,
        lambda c: setattr(c, "leader", W1),
        lambda c: c.start(W3, at=NOW + 4),
    ],
)
def test_a_group_that_moved_between_two_good_polls_starts_the_count_anew(watch: Watch, move: Any) -> None:
    assert watch.poll(0, 3) == [None, None]
    move(watch.cluster)
    assert watch.poll(6, 9, 12) == [None, None, PASS]


@pytest.mark.parametrize(
    ("hold", "pause"),
    [
        (Hold(), 1.0),  # nothing holds yet
        (Hold(1, NOW, "a"), 1.0),
        (Hold(3, NOW - 4.6, "a"), 0.4),  # the rest of five seconds
        (Hold(2, NOW - 5.0, "a"), 1.0),  # long enough, but a poll is missing
    ],
)
def test_the_pause_before_the_next_look_ends_with_the_hold(watch: Watch, hold: Hold, pause: float) -> None:
    assert replace(watch.gate, hold=hold).pause_seconds(1.0, now=NOW) == pytest.approx(pause)


def test_nothing_passes_without_a_single_good_poll() -> None:
    assert not Hold().is_long_enough(polls=0, seconds=0.0, now=NOW)


# how old a look is


def test_a_hold_lasts_until_the_last_look_was_begun(watch: Watch) -> None:
    """What its oldest part has seen may have ended right after: a worker may be dead since."""
    assert watch.poll(0, 4, 8, 9, took=4.0) == [None, None, None, PASS]


def test_a_look_that_took_too_long_opens_no_gate_and_is_named(watch: Watch) -> None:
    assert watch.poll(0, 13, 26, 39, 52, took=12.0) == [None] * 5
    assert "awaiting look: it took 12 s" in watch.answer.status_line(watch.gate)
    assert watch.poll(60, took=12.0) == [INCONCLUSIVE]
    assert watch.open_checks() == ["look"]


def test_a_look_that_was_begun_before_the_restart_counts_for_nothing(watch: Watch) -> None:
    restarted = Gate.RESTARTED_AFTER - NOW
    assert watch.poll(*(restarted + second for second in (0, 3, 6, 7.9)), took=8.0) == [None] * 4
    assert watch.poll(*(restarted + second for second in (8, 11, 14))) == [None, None, PASS]


# three answers


def not_reached(cluster: Any) -> None:
    """Its silence is its machine's."""
    running = Running(None, "its machine is not reached", None, None)
    cluster.facts(W2, is_running=False, running=running).silent(W2, "no route to host")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda c: c.task("mirror", 1, state="UNASSIGNED"), FAIL),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), INCONCLUSIVE),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN).task("mirror", 1, state="FAILED"), FAIL),
        (lambda c: c.prove(W2, ModeVerdict.DISABLED).unhealthy(W2), FAIL),  # it may still be starting
        (not_reached, INCONCLUSIVE),
    ],
)
def test_what_does_not_come_true_is_waited_for_until_the_deadline(watch: Watch, change: Any, verdict: Verdict) -> None:
    change(watch.cluster)
    assert watch.poll(0, 30, 59, 60) == [None, None, None, verdict]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda c: c.kill(W2), FAIL),
        (lambda c: c.prove(W2, ModeVerdict.DISABLED), FAIL),
        (lambda c: c.facts(W2, digest="edited"), FAIL),
        (lambda c: c.join(FOREIGN), INCONCLUSIVE),
        # even while something else still has to come true
        (lambda c: c.join(FOREIGN).task("mirror", 1, state="UNASSIGNED"), INCONCLUSIVE),
    ],
)
def test_what_waiting_cannot_change_is_answered_at_once(watch: Watch, change: Any, verdict: Verdict) -> None:
    change(watch.cluster)
    assert watch.poll(0) == [verdict]


def test_a_group_that_keeps_moving_is_given_up_after_the_deadline(watch: Watch) -> None:
    """Each poll is good, but each on another group: without a limit this would be waited for forever."""
    for second in range(0, 66, 3):
        watch.cluster.leader = (W1, W3)[second % 2]
        watch.poll(second)
    assert watch.answer.verdict is INCONCLUSIVE
    assert watch.open_checks() == ["hold"]


def test_the_status_line_says_what_is_awaited_and_until_when(watch: Watch) -> None:
    watch.poll(0)
    assert watch.answer.status_line(watch.gate) == "all 11 checks pass; confirming that for 5 s"
    watch.cluster.task("mirror", 1, state="UNASSIGNED")
    watch.poll(3)
    line = watch.answer.status_line(watch.gate)
    assert line.startswith("10 of 11 checks pass; awaiting states: task mirror-1 is UNASSIGNED")
    assert "(until " in line


# the task downtime


@pytest.mark.parametrize(
    ("down", "up"),
    [
        (lambda c: c.task("mirror", 1, state="UNASSIGNED"), lambda c: c.task("mirror", 1, state="RUNNING")),
        # RUNNING from a dead worker does not count
        (lambda c: c.place(("mirror", 1), W3), lambda c: c.task("mirror", 1, worker_id=W3)),
        (lambda c: c.rebalancing(), lambda c: setattr(c, "state", "Stable")),  # no placement is reported
        (lambda c: c.see(statuses={}), lambda c: c.extra.clear()),
    ],
)
def test_tasks_are_down_until_the_member_that_they_are_placed_on_runs_them_all(
    watch: Watch, down: Any, up: Any
) -> None:
    down(watch.cluster)
    watch.poll(0)
    up(watch.cluster)
    watch.poll(4, 9)
    assert watch.downtime() == 34.0
    watch.cluster.task("sink", 0, state="UNASSIGNED")  # and again
    watch.poll(10)
    watch.cluster.task("sink", 0, state="RUNNING")
    watch.poll(14)
    assert watch.downtime() == 44.0


def test_a_worker_without_tasks_has_no_downtime(gate: Gate) -> None:
    watch = Watch(gate, polls=1, hold_seconds=0.0, tasks=())
    assert watch.poll(0) == [PASS]
    assert watch.downtime() == 0.0


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.connector("sink", target_state="PAUSED").task("sink", 0, state="PAUSED"),
        lambda c: c.delete_connector("sink"),
        lambda c: c.task("sink", 0, state="FAILED"),  # as before the roll
    ],
)
def test_a_task_that_is_not_expected_to_run_does_not_hide_the_downtime_of_others(watch: Watch, change: Any) -> None:
    watch.of.baseline = Baseline(tasks={**watch.of.baseline.tasks, "sink/0": "FAILED"})
    change(watch.cluster)
    watch.poll(0)
    assert watch.downtime() == 30.0


# failed fencing

#: What Connect leaves in a task's status when the leader was bounced under its request: no word of zombies in the
#: message, since a ConnectRestException is not wrapped; only the frames tell (RestClient and DistributedHerder, 4.3.1).
FORWARDING_FAILED = "\n\tat ".join(
    (
        "org.apache.kafka.connect.runtime.rest.errors.ConnectRestException: "
        "IO Error trying to forward REST request: Connection refused",
        "org.apache.kafka.connect.runtime.rest.RestClient.httpRequest(RestClient.java)",
        "org.apache.kafka.connect.runtime.distributed.DistributedHerder"
        ".lambda$fenceZombieSourceTasks$1(DistributedHerder.java)",
    )
)


@pytest.mark.parametrize(
    ("task", "before", "restarted"),
    [
        (
            {
                "state": "FAILED",
                "trace": "org.apache.kafka.connect.errors.ConnectException: Failed to perform round of "
                "zombie fencing\n\tat x",
            },
            "RUNNING",
            True,
        ),
        (
            {
                "state": "FAILED",
                "trace": "…\nCaused by: org.apache.kafka.connect.errors.ConnectException: Failed to "
                "perform zombie fencing\n\tat x",
            },
            "RUNNING",
            True,
        ),
        ({"state": "FAILED", "trace": FORWARDING_FAILED}, "RUNNING", True),
        ({"state": "FAILED", "trace": "java.lang.OutOfMemoryError"}, "RUNNING", False),
        ({"state": "FAILED"}, "RUNNING", False),
        ({"state": "FAILED", "trace": FORWARDING_FAILED}, "FAILED", False),
        ({"trace": FORWARDING_FAILED}, "RUNNING", False),  # an old trace
    ],
)
def test_a_task_that_failed_for_want_of_fencing_is_restarted_and_no_other(
    gate: Gate, task: dict[str, str], before: str, restarted: bool
) -> None:
    gate.baseline = Baseline(gate.baseline.connectors, {**gate.baseline.tasks, "mirror/1": before})
    gate.cluster.task("mirror", 1, **task)
    wanted = {"mirror": "zombie fencing failed"} if restarted else {}
    assert connectors_to_restart(gate.expected(), gate.cluster.observe()) == wanted


# several checks together


def test_a_failure_outweighs_an_unknown_and_an_unknown_outweighs_a_pass() -> None:
    good, bad, open_one = passed("a", ""), failed("b", ""), inconclusive("c", "")
    assert [overall(each) for each in ([good], [good, open_one], [open_one, bad, good])] == [PASS, INCONCLUSIVE, FAIL]


def test_a_check_that_did_not_pass_says_what_to_do() -> None:
    assert str(failed("REST", "silent", "read its log")) == "REST: fail - silent (what to do: read its log)"
    assert str(failed("REST", "silent")) == "REST: fail - silent"
    assert failed("REST", "silent", "read", decisive=True).to_dict() == {
        "subject": "REST",
        "verdict": "fail",
        "found": "silent",
        "expected": "",
        "remedy": "read",
        "kind": "",
    }


# The rebalance delay, which members report as of the last rebalance, counted from when it was first seen


@pytest.mark.parametrize(
    ("change", "later", "remaining"),
    [
        (lambda c: c, 100, 200.0),  # a figure that stays the same is counted from its first sight
        (lambda c: c, 301, 0.0),
        (lambda c: c.assign(W2, delay_ms=250_000), 60, 250.0),  # another one anew
        (lambda c: c.assign(W2, delay_ms=0), 10, 0.0),
        (lambda c: c.rebalancing(), 10, 290.0),  # nothing is reported, and nothing forgotten
    ],
)
def test_what_remains_of_a_delay(cluster: Any, change: Any, later: float, remaining: float) -> None:
    none = DelayClock()
    assert (none.after(cluster.observe()), none.remaining(NOW)) == (none, 0.0)
    clock = none.after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    change(cluster)
    assert clock.after(cluster.observe(at=NOW + later)).remaining(NOW + later) == remaining


def test_a_delay_that_is_first_seen_late_moves_the_gates_deadline_no_further_than_to_the_latest(gate: Gate) -> None:
    watch = Watch(gate, deadline=NOW + 100, latest_deadline=NOW + 200, after_delay_seconds=20.0)
    watch.poll(0)
    gate.cluster.assign(W2, delay_ms=90_000)
    watch.poll(60)
    assert watch.gate.deadline == NOW + 60 + 90 + 20
    assert watch.gate.delay.remaining(NOW + 70) == 80.0
    assert "the rebalance delay ends by" in watch.answer.status_line(watch.gate)
    for number in range(20):  # a group that flaps
        gate.cluster.assign(W2, delay_ms=90_001 + number)
        watch.poll(61 + 9 * number)
    assert watch.gate.deadline == NOW + 200


def test_a_deadline_that_the_user_has_set_stays(gate: Gate) -> None:
    gate.cluster.assign(W2, delay_ms=300_000)
    watch = Watch(gate, latest_deadline=NOW + 200)
    watch.poll(0)
    assert watch.gate.deadline == DEADLINE
