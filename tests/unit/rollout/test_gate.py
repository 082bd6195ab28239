"""The hold, the three answers, and how long the tasks stood still."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.modes import ModeVerdict
from airflow_eos_provider.rollout.checks import Verdict, failed, inconclusive, overall, passed
from airflow_eos_provider.rollout.expectation import Baseline
from airflow_eos_provider.rollout.gate import GateWatch, Hold, connectors_to_heal

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0
DEADLINE = NOW + 60.0


@pytest.fixture
def watch() -> GateWatch:
    """Three polls over five seconds, given up after a minute."""
    return GateWatch(polls=3, hold_seconds=5.0, deadline=DEADLINE, tasks=("mirror/1", "sink/0"))


def poll(watch: GateWatch, gate: Any, at: float) -> Verdict | None:
    return watch.poll(gate.expected(), gate.cluster.observe(at=at))


# the hold


def test_the_gate_passes_when_all_conditions_held_for_enough_polls_and_enough_time(watch: GateWatch, gate: Any) -> None:
    answers = [poll(watch, gate, NOW + second) for second in (0, 3, 6)]
    assert answers == [None, None, Verdict.PASS]


def test_enough_polls_in_too_short_a_time_do_not_pass(watch: GateWatch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + tenth / 10) for tenth in range(10)] == [None] * 10
    assert poll(watch, gate, NOW + 5.0) is Verdict.PASS


def test_enough_time_with_too_few_polls_does_not_pass(watch: GateWatch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 20)] == [None, None]


def test_one_bad_poll_starts_the_count_anew(watch: GateWatch, gate: Any) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 3)] == [None, None]
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    assert poll(watch, gate, NOW + 6) is None
    gate.cluster.task("mirror", 1, state="RUNNING")
    assert [poll(watch, gate, NOW + second) for second in (9, 12, 15)] == [None, None, Verdict.PASS]


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
def test_a_group_that_moved_between_two_good_polls_starts_the_count_anew(
    watch: GateWatch, gate: Any, move: Any
) -> None:
    assert [poll(watch, gate, NOW + second) for second in (0, 3)] == [None, None]
    move(gate.cluster)
    assert [poll(watch, gate, NOW + second) for second in (6, 9, 12)] == [None, None, Verdict.PASS]


def test_nothing_passes_without_a_single_good_poll() -> None:
    assert not Hold().is_long_enough(polls=0, seconds=0.0, now=NOW)


# three answers


def test_a_condition_that_does_not_come_true_is_waited_for_until_the_deadline(watch: GateWatch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    assert [poll(watch, gate, NOW + second) for second in (0, 30, 59)] == [None] * 3
    assert poll(watch, gate, DEADLINE) is Verdict.FAIL


def test_what_cannot_be_told_pauses_after_the_deadline(watch: GateWatch, gate: Any) -> None:
    gate.cluster.prove(W2, ModeVerdict.UNKNOWN)
    assert [poll(watch, gate, NOW + second) for second in (0, 59)] == [None] * 2
    assert poll(watch, gate, DEADLINE) is Verdict.INCONCLUSIVE


def test_a_failure_outweighs_what_cannot_be_told(watch: GateWatch, gate: Any) -> None:
    gate.cluster.prove(W2, ModeVerdict.UNKNOWN).task("mirror", 1, state="FAILED")
    assert poll(watch, gate, DEADLINE) is Verdict.FAIL


def test_a_failure_that_waiting_cannot_change_is_told_at_once(watch: GateWatch, gate: Any) -> None:
    gate.cluster.kill(W2)
    assert poll(watch, gate, NOW) is Verdict.FAIL


def test_a_wrong_mode_fails_at_once(watch: GateWatch, gate: Any) -> None:
    gate.cluster.prove(W2, ModeVerdict.DISABLED)
    assert poll(watch, gate, NOW) is Verdict.FAIL


def test_an_edited_file_fails_at_once(watch: GateWatch, gate: Any) -> None:
    gate.cluster.facts(W2, config_sha256="edited")
    assert poll(watch, gate, NOW) is Verdict.FAIL


def test_a_stranger_pauses_at_once(watch: GateWatch, gate: Any) -> None:
    gate.cluster.join("w9:8083")
    assert poll(watch, gate, NOW) is Verdict.INCONCLUSIVE


def test_a_stranger_pauses_even_while_something_else_still_has_to_come_true(watch: GateWatch, gate: Any) -> None:
    gate.cluster.join("w9:8083").task("mirror", 1, state="UNASSIGNED")
    assert poll(watch, gate, NOW) is Verdict.INCONCLUSIVE


def test_a_rebalance_is_waited_for(watch: GateWatch, gate: Any) -> None:
    gate.cluster.rebalancing()
    assert poll(watch, gate, NOW) is None
    gate.cluster.state = "Stable"
    assert [poll(watch, gate, NOW + second) for second in (3, 6, 9)] == [None, None, Verdict.PASS]


def test_a_hold_under_way_at_the_deadline_may_come_to_its_end(watch: GateWatch, gate: Any) -> None:
    assert [poll(watch, gate, DEADLINE + second) for second in (-1, 2, 5)] == [None, None, Verdict.PASS]


def test_a_group_that_keeps_moving_is_given_up_after_the_deadline(watch: GateWatch, gate: Any) -> None:
    """Each poll is good, but each on another group: without a limit this would be waited for forever."""
    for second in range(0, 66, 3):
        gate.cluster.leader = (W1, W3)[second % 2]
        answer = poll(watch, gate, NOW + second)
    assert answer is Verdict.INCONCLUSIVE
    assert [check.name for check in watch.checks if not check.passed] == ["hold"]


# what is said meanwhile


def test_the_status_line_says_what_is_awaited_and_until_when(watch: GateWatch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW)
    line = watch.status_line()
    assert line.startswith("10 of 11 conditions hold; awaiting states: task mirror-1 is UNASSIGNED")
    assert "(until " in line


def test_the_status_line_says_that_all_holds_and_is_watched(watch: GateWatch, gate: Any) -> None:
    poll(watch, gate, NOW)
    assert watch.status_line() == "all 11 conditions hold; watching for 5 s that they stay so"


# how long the tasks stood still


SINCE = NOW - 30.0


def test_tasks_stood_still_until_the_last_of_them_ran(watch: GateWatch, gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="UNASSIGNED")
    poll(watch, gate, NOW)
    gate.cluster.task("mirror", 1, state="RUNNING")
    poll(watch, gate, NOW + 4)
    poll(watch, gate, NOW + 9)
    assert watch.stood_seconds(SINCE) == 34.0


def test_running_from_a_dead_worker_does_not_end_the_stand_still(watch: GateWatch, gate: Any) -> None:
    gate.cluster.place(("mirror", 1), W3)
    poll(watch, gate, NOW)
    gate.cluster.task("mirror", 1, worker_id=W3)
    poll(watch, gate, NOW + 4)
    assert watch.stood_seconds(SINCE) == 34.0


def test_a_task_without_a_status_stands_still(watch: GateWatch, gate: Any) -> None:
    status = gate.cluster.statuses.pop("sink")
    poll(watch, gate, NOW)
    gate.cluster.statuses["sink"] = status
    poll(watch, gate, NOW + 4)
    assert watch.stood_seconds(SINCE) == 34.0


def test_tasks_whose_placement_is_not_told_stand_still(watch: GateWatch, gate: Any) -> None:
    gate.cluster.rebalancing()
    poll(watch, gate, NOW)
    gate.cluster.state = "Stable"
    poll(watch, gate, NOW + 4)
    assert watch.stood_seconds(SINCE) == 34.0


def test_tasks_that_stop_again_stand_still_until_they_run_again(watch: GateWatch, gate: Any) -> None:
    poll(watch, gate, NOW)
    gate.cluster.task("sink", 0, state="UNASSIGNED")
    poll(watch, gate, NOW + 4)
    gate.cluster.task("sink", 0, state="RUNNING")
    poll(watch, gate, NOW + 8)
    assert watch.stood_seconds(SINCE) == 38.0


def test_a_worker_without_tasks_let_none_stand_still(gate: Any) -> None:
    watch = GateWatch(polls=1, hold_seconds=0.0, deadline=DEADLINE)
    assert poll(watch, gate, NOW) is Verdict.PASS
    assert watch.stood_seconds(SINCE) == 0.0


def test_a_task_that_was_broken_before_does_not_hide_the_others_stand_still(watch: GateWatch, gate: Any) -> None:
    gate.baseline = Baseline(gate.baseline.connectors, {**gate.baseline.tasks, "sink/0": "FAILED"})
    gate.cluster.task("sink", 0, state="FAILED")
    poll(watch, gate, NOW)
    assert watch.stood_seconds(SINCE) == 30.0


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.connector("sink", target_state="PAUSED").task("sink", 0, state="PAUSED"),
        lambda c: c.delete_connector("sink"),
    ],
)
def test_a_task_that_shall_not_run_any_more_does_not_hide_the_others_stand_still(
    watch: GateWatch, gate: Any, change: Any
) -> None:
    change(gate.cluster)
    poll(watch, gate, NOW)
    assert watch.stood_seconds(SINCE) == 30.0


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
    assert connectors_to_heal(gate.expected(), gate.cluster.observe()) == {"mirror": "zombie fencing failed"}


def test_a_task_that_failed_for_another_reason_is_left_alone(gate: Any) -> None:
    gate.cluster.task("mirror", 1, state="FAILED", trace="java.lang.OutOfMemoryError").task("sink", 0, state="FAILED")
    assert connectors_to_heal(gate.expected(), gate.cluster.observe()) == {}


def test_a_task_whose_fencing_had_failed_before_the_roll_is_left_alone(gate: Any) -> None:
    gate.baseline = Baseline(gate.baseline.connectors, {**gate.baseline.tasks, "mirror/1": "FAILED"})
    gate.cluster.task("mirror", 1, state="FAILED", trace=FORWARDING_FAILED)
    assert connectors_to_heal(gate.expected(), gate.cluster.observe()) == {}


def test_a_running_task_with_an_old_trace_is_left_alone(gate: Any) -> None:
    gate.cluster.task("mirror", 1, trace=FORWARDING_FAILED)
    assert connectors_to_heal(gate.expected(), gate.cluster.observe()) == {}


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
        "name": "REST",
        "verdict": "fail",
        "evidence": "silent",
        "remedy": "read",
        "decisive": True,
    }


def test_the_gate_between_preparing_and_enabled_asks_for_the_same_hold(watch: GateWatch, gate_of: Any) -> None:
    gate = gate_of(target=Mode.ENABLED, current=Mode.PREPARING)
    assert [poll(watch, gate, NOW + second) for second in (0, 3, 6)] == [None, None, Verdict.PASS]
