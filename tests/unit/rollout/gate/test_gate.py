"""The hold, the three answers, and the task downtime."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Running
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.rollout.check import failed, inconclusive, passed
from airflow_eos_provider.rollout.gate import gate as module
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.gate.gate import GateAnswer, connectors_to_restart
from airflow_eos_provider.rollout.gate.state import DelayClock, GateState, Hold
from airflow_eos_provider.rollout.observe.observation import Observation

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"


NOW = 1_000_000.0


DEADLINE = NOW + 60.0


class Watch:
    """One gate being waited for, look by look: three polls over five seconds, given up after a minute."""

    def __init__(
        self, polls: int = 3, hold_seconds: float = 5.0, tasks: tuple[str, ...] = ("mirror/1", "sink/0")
    ) -> None:
        self.gate = GateState(
            rollout_id="r1",
            worker_id=W2,
            restart_id=1.0,
            polls=polls,
            hold_seconds=hold_seconds,
            deadline=DEADLINE,
            latest_deadline=DEADLINE,
            tasks=tasks,
        )
        self.answer = GateAnswer((), None)

    def look(self, gate: Any, observation: Observation) -> Verdict | None:
        self.gate, self.answer = module.poll(self.gate, gate.expected(), observation)
        return self.answer.verdict

    def status_line(self) -> str:
        return self.answer.status_line(self.gate)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def poll(watch: Watch, gate: Any, at: float) -> Verdict | None:
    return watch.look(gate, gate.cluster.observe(at=at))


# the hold


def test_the_gate_passes_when_all_conditions_held_for_enough_polls_and_enough_time(watch: Watch, gate: Any) -> None:
    answers = [poll(watch, gate, NOW + second) for second in (0, 3, 6)]
    assert answers == [None, None, Verdict.PASS]


def test_enough_polls_in_too_short_a_time_do_not_pass(watch: Watch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + tenth / 10) for tenth in range(10)] == [None] * 10
    assert poll(watch, gate, NOW + 5.0) is Verdict.PASS


def test_enough_time_with_too_few_polls_does_not_pass(watch: Watch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 20)] == [None, None]


def test_one_bad_poll_starts_the_count_anew(watch: Watch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 3)] == [None, None]
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    assert poll(watch, gate, NOW + 6) is None
    gate.cluster.task("mirror", 1, state="RUNNING")
    assert [poll(watch, gate, NOW + second) for second in (9, 12, 15)] == [None, None, Verdict.PASS]


def test_a_condition_is_true_since_the_look_from_which_on_it_has_held(watch: Watch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW)
    (open_now,) = {check.subject for check in watch.answer.open_checks}
    held_now = set(watch.gate.true_since)
    assert open_now not in held_now
    gate.cluster.task("mirror", 1, state="RUNNING")
    for second in (3, 6):
        poll(watch, gate, NOW + second)
    assert watch.gate.true_since == {**dict.fromkeys(held_now, NOW), open_now: NOW + 3}
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW + 9)
    assert open_now not in watch.gate.true_since


def test_a_gate_that_an_earlier_version_has_handed_over_is_taken_up(watch: Watch, gate: Any) -> None:
    poll(watch, gate, NOW)
    assert watch.gate.true_since
    document = json.loads(json.dumps(watch.gate.to_dict()))
    assert GateState.from_dict(document) == watch.gate
    del document["true_since"]
    assert GateState.from_dict(document).true_since == {}


def moved_task(cluster: Any) -> None:
    cluster.place(("mirror", 1), W3).task("mirror", 1, worker_id=W3)


def moved_connector(cluster: Any) -> None:
    cluster.placed[W2][0].discard("sink")
    cluster.placed[W3][0].add("sink")
    cluster.status("sink", worker_id=W3)


def other_leader(cluster: Any) -> None:
    cluster.leader = W1


def worker_bounced(cluster: Any) -> None:
    cluster.start(W3, at=NOW + 4)


@pytest.mark.parametrize("move", [moved_task, moved_connector, other_leader, worker_bounced])
def test_a_group_that_moved_between_two_good_polls_starts_the_count_anew(watch: Watch, gate: Any, move: Any) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 3)] == [None, None]
    move(gate.cluster)
    assert [poll(watch, gate, NOW + second) for second in (6, 9, 12)] == [None, None, Verdict.PASS]


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


def slow(watch: Watch, gate: Any, at: float, took: float) -> Verdict | None:
    """One poll by a look that took so many seconds until then."""
    return watch.look(gate, replace(gate.cluster.observe(at=at), took_seconds=took))


def test_a_hold_lasts_until_the_last_look_was_begun(watch: Watch, gate: Any) -> None:
    """What its oldest part has seen may have ended right after: a worker may be dead since."""
    assert [slow(watch, gate, NOW + second, took=4.0) for second in (0, 4, 8)] == [None] * 3
    assert slow(watch, gate, NOW + 9.0, took=4.0) is Verdict.PASS


def test_a_look_that_took_too_long_opens_no_gate_and_is_named(watch: Watch, gate: Any) -> None:
    assert [slow(watch, gate, NOW + second, took=12.0) for second in (0, 13, 26, 39, 52)] == [None] * 5
    assert "awaiting look: it took 12 s" in watch.status_line()
    assert slow(watch, gate, DEADLINE, took=12.0) is Verdict.INCONCLUSIVE
    assert [check.subject for check in watch.answer.open_checks] == ["look"]


def test_a_look_that_was_begun_before_the_restart_counts_for_nothing(watch: Watch, gate: Any) -> None:
    restarted = gate.RESTARTED_AFTER
    assert [slow(watch, gate, restarted + second, took=8.0) for second in (0, 3, 6)] == [None] * 3
    assert slow(watch, gate, restarted + 7.9, took=8.0) is None
    assert [slow(watch, gate, restarted + second, took=0.0) for second in (8, 11)] == [None] * 2
    assert slow(watch, gate, restarted + 14, took=0.0) is Verdict.PASS


# three answers


def test_a_condition_that_does_not_come_true_is_waited_for_until_the_deadline(watch: Watch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    assert [poll(watch, gate, NOW + second) for second in (0, 30, 59)] == [None] * 3
    assert poll(watch, gate, DEADLINE) is Verdict.FAIL


def test_what_is_not_known_pauses_after_the_deadline(watch: Watch, gate: Any) -> None:
    gate.cluster.prove(W2, ModeVerdict.UNKNOWN)
    assert [poll(watch, gate, NOW + second) for second in (0, 59)] == [None] * 2
    assert poll(watch, gate, DEADLINE) is Verdict.INCONCLUSIVE


def test_a_failure_outweighs_what_is_not_known(watch: Watch, gate: Any) -> None:
    gate.cluster.prove(W2, ModeVerdict.UNKNOWN).task("mirror", 1, state="FAILED")
    assert poll(watch, gate, DEADLINE) is Verdict.FAIL


def test_a_worker_whose_machine_is_not_reached_is_not_to_blame_for_its_silence(watch: Watch, gate: Any) -> None:
    not_reached = Running(None, "its machine is not reached", None, None)
    gate.cluster.facts(W2, is_running=False, running=not_reached).worker(W2, root=None, rest_problem="no route to host")
    assert [poll(watch, gate, NOW + second) for second in (0, 59)] == [None] * 2
    assert poll(watch, gate, DEADLINE) is Verdict.INCONCLUSIVE
    assert any(check.verdict is Verdict.FAIL for check in watch.answer.checks)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda c: c.kill(W2), Verdict.FAIL),
        (lambda c: c.prove(W2, ModeVerdict.DISABLED), Verdict.FAIL),
        (lambda c: c.facts(W2, digest="edited"), Verdict.FAIL),
        (lambda c: c.join("w9:8083"), Verdict.INCONCLUSIVE),
        # even while something else still has to come true
        (lambda c: c.join("w9:8083").task("mirror", 1, state="UNASSIGNED"), Verdict.INCONCLUSIVE),
    ],
)
def test_what_waiting_cannot_change_is_answered_at_once(watch: Watch, gate: Any, change: Any, verdict: Verdict) -> None:
    change(gate.cluster)
    assert poll(watch, gate, NOW) is verdict


def test_a_rebalance_is_waited_for(watch: Watch, gate: Any) -> None:
    gate.cluster.rebalancing()
    assert poll(watch, gate, NOW) is None
    gate.cluster.state = "Stable"
    assert [poll(watch, gate, NOW + second) for second in (3, 6, 9)] == [None, None, Verdict.PASS]


def test_a_hold_under_way_at_the_deadline_may_come_to_its_end(watch: Watch, gate: Any) -> None:
    assert [poll(watch, gate, DEADLINE + second) for second in (-1, 2, 5)] == [None, None, Verdict.PASS]


def test_a_group_that_keeps_moving_is_given_up_after_the_deadline(watch: Watch, gate: Any) -> None:
    """Each poll is good, but each on another group: without a limit this would be waited for forever."""
    for second in range(0, 66, 3):
        gate.cluster.leader = (W1, W3)[second % 2]
        answer = poll(watch, gate, NOW + second)
    assert answer is Verdict.INCONCLUSIVE
    assert [check.subject for check in watch.answer.open_checks] == ["hold"]


# what is said meanwhile


def test_the_status_line_says_what_is_awaited_and_until_when(watch: Watch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW)
    line = watch.status_line()
    assert line.startswith("10 of 11 checks pass; awaiting states: task mirror-1 is UNASSIGNED")
    assert "(until " in line


def test_the_status_line_says_that_all_holds_and_is_watched(watch: Watch, gate: Any) -> None:
    poll(watch, gate, NOW)
    assert watch.status_line() == "all 11 checks pass; confirming that for 5 s"


# the task downtime


SINCE = NOW - 30.0


def test_the_downtime_lasts_until_the_last_task_runs(watch: Watch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW)
    gate.cluster.task("mirror", 1, state="RUNNING")
    poll(watch, gate, NOW + 4)
    poll(watch, gate, NOW + 9)
    assert watch.gate.downtime_seconds(SINCE) == 34.0


@pytest.mark.parametrize(
    ("down", "up"),
    [
        # RUNNING from a dead worker does not count
        (lambda c: c.place(("mirror", 1), W3), lambda c: c.task("mirror", 1, worker_id=W3)),
        (lambda c: c.task("sink", 0, state="UNASSIGNED"), lambda c: c.task("sink", 0, state="RUNNING")),
        (lambda c: c.rebalancing(), lambda c: setattr(c, "state", "Stable")),  # no placement is reported
    ],
)
def test_tasks_are_down_until_the_member_that_they_are_placed_on_runs_them(
    watch: Watch, gate: Any, down: Any, up: Any
) -> None:
    down(gate.cluster)
    poll(watch, gate, NOW)
    up(gate.cluster)
    poll(watch, gate, NOW + 4)
    assert watch.gate.downtime_seconds(SINCE) == 34.0


def test_a_task_without_a_status_is_down(watch: Watch, gate: Any) -> None:
    status = gate.cluster.statuses.pop("sink")
    poll(watch, gate, NOW)
    gate.cluster.statuses["sink"] = status
    poll(watch, gate, NOW + 4)
    assert watch.gate.downtime_seconds(SINCE) == 34.0


def test_tasks_that_stop_again_are_down_until_they_run_again(watch: Watch, gate: Any) -> None:
    poll(watch, gate, NOW)
    gate.cluster.task("sink", 0, state="UNASSIGNED")
    poll(watch, gate, NOW + 4)
    gate.cluster.task("sink", 0, state="RUNNING")
    poll(watch, gate, NOW + 8)
    assert watch.gate.downtime_seconds(SINCE) == 38.0


def test_a_worker_without_tasks_has_no_downtime(gate: Any) -> None:
    watch = Watch(polls=1, hold_seconds=0.0, tasks=())
    assert poll(watch, gate, NOW) is Verdict.PASS
    assert watch.gate.downtime_seconds(SINCE) == 0.0


def test_a_task_that_was_broken_before_does_not_hide_the_downtime_of_others(watch: Watch, gate: Any) -> None:
    gate.baseline = Baseline(gate.baseline.connectors, {**gate.baseline.tasks, "sink/0": "FAILED"})
    gate.cluster.task("sink", 0, state="FAILED")
    poll(watch, gate, NOW)
    assert watch.gate.downtime_seconds(SINCE) == 30.0


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.connector("sink", target_state="PAUSED").task("sink", 0, state="PAUSED"),
        lambda c: c.delete_connector("sink"),
    ],
)
def test_a_task_that_is_not_to_run_any_more_does_not_hide_the_downtime_of_others(
    watch: Watch, gate: Any, change: Any
) -> None:
    change(gate.cluster)
    poll(watch, gate, NOW)
    assert watch.gate.downtime_seconds(SINCE) == 30.0


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
    "trace",
    [
        "org.apache.kafka.connect.errors.ConnectException: Failed to perform round of zombie fencing\n\tat x",
        "…\nCaused by: org.apache.kafka.connect.errors.ConnectException: Failed to perform zombie fencing\n\tat x",
        FORWARDING_FAILED,
    ],
)
def test_a_task_that_failed_for_want_of_fencing_is_known_by_its_trace(gate: Any, trace: str) -> None:
    gate.cluster.task("mirror", 1, state="FAILED", trace=trace)
    assert connectors_to_restart(gate.expected(), gate.cluster.observe()) == {"mirror": "zombie fencing failed"}


@pytest.mark.parametrize(
    ("task", "before"),
    [
        ({"state": "FAILED", "trace": "java.lang.OutOfMemoryError"}, "RUNNING"),
        ({"state": "FAILED"}, "RUNNING"),
        ({"state": "FAILED", "trace": FORWARDING_FAILED}, "FAILED"),
        ({"trace": FORWARDING_FAILED}, "RUNNING"),  # an old trace
    ],
)
def test_any_other_task_is_left_alone(gate: Any, task: dict[str, str], before: str) -> None:
    gate.baseline = Baseline(gate.baseline.connectors, {**gate.baseline.tasks, "mirror/1": before})
    gate.cluster.task("mirror", 1, **task)
    assert connectors_to_restart(gate.expected(), gate.cluster.observe()) == {}


# several checks together


def test_a_failure_outweighs_an_unknown_and_an_unknown_outweighs_a_pass() -> None:
    good, bad, open_one = passed("a", ""), failed("b", ""), inconclusive("c", "")
    assert overall([good]) is Verdict.PASS
    assert overall([good, open_one]) is Verdict.INCONCLUSIVE
    assert overall([open_one, bad, good]) is Verdict.FAIL


def test_a_check_that_did_not_pass_says_what_to_do() -> None:
    assert str(failed("REST", "w1 is silent", "read its log")) == (
        "REST: fail - w1 is silent (what to do: read its log)"
    )
    assert str(failed("REST", "w1 is silent")) == "REST: fail - w1 is silent"
    assert str(passed("REST", "3 of 3")) == "REST: pass - 3 of 3"
    assert failed("REST", "silent", "read", decisive=True).to_dict() == {
        "subject": "REST",
        "verdict": "fail",
        "found": "silent",
        "expected": "",
        "remedy": "read",
        "kind": "",
    }


def test_the_gate_between_preparing_and_enabled_asks_for_the_same_hold(watch: Watch, gate_of: Any) -> None:
    gate = gate_of(target=Mode.ENABLED, current=Mode.PREPARING)
    assert [poll(watch, gate, NOW + second) for second in (0, 3, 6)] == [None, None, Verdict.PASS]


# The rebalance delay, which members report as of the last rebalance, counted from when it was first seen


def test_without_a_delay_nothing_remains(cluster: Any) -> None:
    clock = DelayClock()
    assert clock.after(cluster.observe()) is clock
    assert clock.remaining(NOW) == 0.0


def test_a_figure_that_stays_the_same_is_counted_from_its_first_sight(cluster: Any) -> None:
    cluster.assign(W2, delay_ms=300_000)
    clock = DelayClock().after(cluster.observe(at=NOW))
    assert clock.after(cluster.observe(at=NOW + 100)) is clock
    assert clock.remaining(NOW + 100) == 200.0
    assert clock.remaining(NOW + 301) == 0.0


def test_another_figure_is_counted_anew(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.assign(W2, delay_ms=250_000).observe(at=NOW + 60))
    assert clock.remaining(NOW + 60) == 250.0


def test_a_delay_that_is_gone_is_over_at_once(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.assign(W2, delay_ms=0).observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 0.0


def test_during_a_rebalance_nothing_is_reported_and_nothing_forgotten(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.rebalancing().observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 290.0


# what the gate makes of it


def waited_for(after_delay_seconds: float | None = 20.0) -> GateState:
    """A gate with a deadline after 100 seconds, which a delay moves at most as far again."""
    return GateState(
        rollout_id="r1",
        worker_id=W2,
        restart_id=1.0,
        polls=3,
        hold_seconds=5.0,
        deadline=NOW + 100,
        latest_deadline=NOW + 200,
        after_delay_seconds=after_delay_seconds,
    )


def test_a_delay_that_is_first_seen_late_moves_the_gates_deadline(gate: Any) -> None:
    state, _ = module.poll(waited_for(), gate.expected(), gate.cluster.observe(at=NOW))
    gate.cluster.assign(W2, delay_ms=90_000)
    state, answer = module.poll(state, gate.expected(), gate.cluster.observe(at=NOW + 60))
    assert state.deadline == NOW + 60 + 90 + 20
    assert state.delay.remaining(NOW + 70) == 80.0
    assert "the rebalance delay ends by" in answer.status_line(state)


def test_no_delay_moves_the_deadline_further_than_to_the_latest(gate: Any) -> None:
    state = waited_for()
    for number in range(20):  # a group that flaps
        gate.cluster.assign(W2, delay_ms=90_000 + number)
        state, _ = module.poll(state, gate.expected(), gate.cluster.observe(at=NOW + 9 * number))
    assert state.deadline == NOW + 200


def test_a_deadline_that_the_user_has_set_stays(gate: Any) -> None:
    gate.cluster.assign(W2, delay_ms=300_000)
    state, _ = module.poll(waited_for(after_delay_seconds=None), gate.expected(), gate.cluster.observe(at=NOW))
    assert state.deadline == NOW + 100
