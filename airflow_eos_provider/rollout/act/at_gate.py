"""What a roll and a trigger do at a gate: begin it, look, hand it over; pure functions of gate and observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.journal.records import Step
from airflow_eos_provider.rollout.act.decision import expectation, leader_to_restart
from airflow_eos_provider.rollout.gate.conditions import CONDITIONS, SEEN_REMOTELY, Condition
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation, silent_elsewhere
from airflow_eos_provider.rollout.gate.gate import GateAnswer, connectors_to_restart, evaluate, poll
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import internal_topics
from airflow_eos_provider.rollout.observe.topic_progress import Memory
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: So often, in seconds, a process of the roll looks at the hosts in any case: only they show a worker that has ended.
HOST_LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AtGate:
    """What one look at a gate asks for.

    :param failed: connectors whose failed tasks are to be restarted, with the reason; empty if that was done.
    :param leader: the worker whose restart ends a rebalance delay sooner than waiting; None if that was done.
    """

    expected: Expectation
    answer: GateAnswer
    failed: Mapping[str, str]
    leader: str | None


def restart_id(steps: Mapping[str, Step], worker_id: str | None) -> float:
    """The restart that a gate follows: this worker's, or (None) the last of all; 0 before the first."""
    if worker_id is not None:
        return steps[worker_id].restart_id
    return max((step.restart_id for step in steps.values() if step.restarted_after), default=0.0)


def begin(
    rollout_id: str,
    worker_id: str | None,
    steps: Mapping[str, Step],
    observation: Observation,
    settings: RolloutSettings,
    now: float,
) -> GateState:
    """A gate that is waited for from now on, of this worker or (None) of the group before a restart."""
    properties = observation.worker(worker_id).facts.properties if worker_id else {}
    watched = [observation.worker(worker_id)] if worker_id else observation.workers
    timeout = settings.gate_timeout(properties, observation.rebalance_delay_ms)
    after_delay = settings.after_delay(properties)
    step = steps.get(worker_id) if worker_id else None
    return GateState(
        rollout_id=rollout_id,
        worker_id=worker_id,
        restart_id=restart_id(steps, worker_id),
        polls=settings.polls,
        hold_seconds=max(settings.hold(worker.facts.properties) for worker in watched),
        deadline=now + timeout,
        latest_deadline=now + (timeout if after_delay is None else 2 * timeout),
        after_delay_seconds=after_delay,
        tasks=step.tasks if step else (),
    )


def look_at(
    gate: GateState,
    plan: Plan,
    steps: Mapping[str, Step],
    baseline: Baseline,
    observation: Observation,
    conditions: tuple[Condition, ...] = CONDITIONS,
) -> tuple[GateState, AtGate]:
    """The gate after one look, and what that asks for."""
    worker_id = gate.worker_id
    expected = expectation(plan, steps, observation, baseline, worker_id)
    gate, answer = poll(gate, expected, observation, conditions)
    failed = {} if gate.failed_tasks_restarted else connectors_to_restart(expected, observation)
    leader = None
    if worker_id is not None and worker_id not in gate.delay_ended_for:
        remaining = gate.delay.remaining(observation.at)
        leader = leader_to_restart(plan, steps, observation, expected, remaining)
    return gate, AtGate(expected, answer, failed, leader)


def holds_remotely(expected: Expectation, observation: Observation) -> bool:
    """Whether every condition holds that a trigger can ask for: then only the hosts, or the end of a hold, are due."""
    return overall(evaluate(expected, observation, SEEN_REMOTELY)) is Verdict.PASS


def handed_over(gate: GateState, expected: Expectation, observation: Observation, memory: Memory) -> GateState:
    """The gate with everything that a process without access to the hosts needs to wait for it."""
    topics = internal_topics({w.worker_id: w.facts for w in observation.workers}, observation.described_topics)
    return replace(
        gate,
        memory=memory,
        config_topic=topics.config,
        offsets_topic=topics.offsets,
        look_at=observation.at + HOST_LOOK_SECONDS,
        silent=tuple(sorted(silent_elsewhere(expected, observation))),
    )
