"""What a roll does at a gate, as values: how one begins, what a look asks for, and what is handed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_eos_provider.rollout.act.at_gate import HOST_LOOK_SECONDS, begin, handed_over, holds_remotely
from airflow_eos_provider.rollout.act.steps import announced_restart, further_restart, passed_gate
from airflow_eos_provider.rollout.answer import passed
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.topic_progress import Memory
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.unit.rollout.conftest import NOW, W1, W2, W3

SETTINGS = RolloutSettings(polls=2, hold_seconds=4.0)


def begun(gate: Any, worker_id: str | None = W2, settings: RolloutSettings = SETTINGS) -> GateState:
    return begin("r1", worker_id, gate.steps, gate.cluster.observe(), settings, NOW)


# how a gate begins


def test_the_gate_of_a_worker_has_its_restart_its_tasks_and_a_deadline_that_a_delay_may_move(gate: Any) -> None:
    gate.steps[W2] = replace(gate.steps[W2], tasks=("mirror/1",))
    state = begun(gate)
    assert (state.subject, state.restart_id, state.tasks) == (W2, gate.RESTARTED_AFTER, ("mirror/1",))
    assert (state.polls, state.hold_seconds) == (2, 4.0)
    assert state.deadline - NOW == SETTINGS.gate_timeout({}, gate.cluster.observe().rebalance_delay_ms)
    assert state.latest_deadline - NOW == 2 * (state.deadline - NOW)
    assert state.after_delay_seconds == SETTINGS.after_delay({})


def test_a_deadline_of_the_user_is_the_latest_one_too(gate: Any) -> None:
    state = begun(gate, settings=replace(SETTINGS, gate_timeout_seconds=7.0))
    assert (state.deadline, state.latest_deadline, state.after_delay_seconds) == (NOW + 7.0, NOW + 7.0, None)


def test_before_a_restart_the_gate_follows_the_last_one(gate: Any) -> None:
    state = begun(gate, worker_id=None)
    assert (state.worker_id, state.restart_id, state.tasks) == (None, gate.RESTARTED_AFTER, ())
    assert state.is_for(None, gate.RESTARTED_AFTER)
    gate.steps.clear()
    assert begun(gate, worker_id=None).restart_id == 0.0


def test_before_a_restart_the_gate_holds_for_the_longest_heartbeat_of_the_workers(gate: Any) -> None:
    for worker_id, milliseconds in ((W1, "300"), (W2, "9000"), (W3, "300")):
        properties = gate.cluster.workers[worker_id].facts.properties
        gate.cluster.facts(worker_id, properties={**properties, "heartbeat.interval.ms": milliseconds})
    settings = replace(SETTINGS, hold_seconds=None)
    holds = [begun(gate, worker_id, settings).hold_seconds for worker_id in (None, W1, W2)]
    assert holds == [11.0, 2.3, 11.0]


# what is handed over


def test_what_is_handed_over_has_what_a_trigger_cannot_see(gate: Any) -> None:
    gate.cluster.kill(W3)
    state, observation, memory = begun(gate), gate.cluster.observe(), Memory(at=NOW)
    assert not holds_remotely(gate.expected(), observation)
    state = handed_over(state, gate.expected(), observation, memory)
    assert (state.silent, state.memory, state.look_at) == ((W3,), memory, observation.at + HOST_LOOK_SECONDS)


def test_a_gate_that_waits_for_the_hosts_alone_is_not_handed_over(gate: Any) -> None:
    gate.cluster.facts(W2, digest="edited")
    assert holds_remotely(gate.expected(), gate.cluster.observe())


# what is announced


def test_a_restart_is_announced_with_the_process_the_tasks_and_the_leadership_of_the_moment(gate: Any) -> None:
    observation = gate.cluster.observe()
    step = announced_restart(W3, gate.plan.target, observation, NOW)
    assert (step.restarted_after, step.led, step.mode) == (NOW, True, str(gate.plan.target))
    assert step.tasks == ("mirror/2",)
    assert step.replaces == observation.worker(W3).facts.start_token


def test_a_leader_that_is_restarted_at_its_own_gate_has_waited_for_it(gate: Any) -> None:
    before = replace(gate.steps[W2], seconds=1.0, task_downtime_seconds=2.0, tasks=("mirror/1",))
    own = further_restart(before, gate.cluster.observe(), NOW, at_its_own_gate=True)
    assert (own.seconds, own.task_downtime_seconds) == (31.0, 32.0)
    other = further_restart(before, gate.cluster.observe(), NOW, at_its_own_gate=False)
    assert (other.seconds, other.task_downtime_seconds, other.restarted_after) == (1.0, 2.0, NOW)


def test_a_passed_gate_has_its_evidence_and_its_times(gate: Any) -> None:
    state = replace(begun(gate), tasks=("mirror/1",), running_since=NOW - 10.0, true_since={"REST": NOW - 25.04})
    step = passed_gate(gate.steps[W2], state, (passed("REST", "3 of 3"),), NOW)
    assert (step.seconds, step.task_downtime_seconds) == (30.0, 20.0)
    assert step.evidence == ("REST: pass - 3 of 3",)
    assert step.conditions_after == {"REST": 5.0}
