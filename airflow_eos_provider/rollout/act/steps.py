"""The step that a roll announces for a worker: a pure function of its previous step and the observation."""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.records import Step, StepStatus
from airflow_eos_provider.rollout.answer import Check
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.hosts.host import Moment
from airflow_eos_provider.rollout.observe.observation import Observation


def tasks_on(worker_id: str, observation: Observation) -> tuple[str, ...]:
    """The tasks (``connector/number``) that the group has placed on this worker."""
    return tuple(f"{connector}/{number}" for connector, number in sorted(observation.tasks_on(worker_id)))


def announced_restart(worker_id: str, target: Mode, observation: Observation, now: float) -> Step:
    """A worker's restart that is announced now."""
    return Step(
        worker_id,
        StepStatus.INTENT,
        now,
        restarted_after=now,
        tasks=tasks_on(worker_id, observation),
        led=worker_id == observation.leader_id,
        mode=str(target),
        replaces=observation.worker(worker_id).facts.start_token,
    )


def announced_again(before: Step, now: float) -> Step:
    """A restart that is announced once more, since it was not finished."""
    return replace(_with_nothing_known(before), status=StepStatus.INTENT, at=now, restarted_after=now)


def failed(before: Step, evidence: tuple[str, ...], process: str, now: float) -> Step:
    """A worker that has failed, and is about to be restored."""
    anew = _with_nothing_known(before)
    return replace(anew, status=StepStatus.FAILED, at=now, evidence=evidence, failed_process=process)


def with_moment(step: Step, moment: Moment | None, at: float) -> Step:
    """A step with a moment of its restart, by the clock that has announced the restart.

    What is replaced ends once, whatever ends later; what has come instead may itself be replaced, before its gate. It
    was started after that end, though the times of another machine are known to within an answer of its alone.
    """
    if moment is None:
        return step
    after = round(at - step.restarted_after, 3)
    if moment is Moment.STARTED:
        return replace(step, started_after=max(after, after if step.stopped_after is None else step.stopped_after))
    return replace(step, stopped_after=after) if step.stopped_after is None else step


def further_restart(before: Step, observation: Observation, now: float, *, at_its_own_gate: bool) -> Step:
    """The leader's further restart, which ends a rebalance delay."""
    waited = now - before.restarted_after if at_its_own_gate else 0.0
    return replace(
        announced_again(before, now),
        tasks=tasks_on(before.worker_id, observation),
        replaces=observation.worker(before.worker_id).facts.start_token,
        seconds=before.seconds + waited,
        task_downtime_seconds=before.task_downtime_seconds + (waited if before.tasks else 0.0),
    )


def at_its_gate(step: Step, gate: GateState, checks: tuple[Check, ...]) -> Step:
    """A restart whose gate is waited for, with the conditions that hold by now."""
    holding = tuple(check for check in checks if check.passed)
    return replace(step, evidence=_evidence(holding), conditions_after=_came_true(step, gate, holding))


def passed_gate(step: Step, gate: GateState, checks: tuple[Check, ...], now: float) -> Step:
    """A restart whose gate has passed, with the evidence and what it took."""
    return replace(
        step,
        status=StepStatus.PASSED,
        at=now,
        seconds=step.seconds + now - step.restarted_after,
        task_downtime_seconds=step.task_downtime_seconds + gate.downtime_seconds(step.restarted_after),
        evidence=_evidence(checks),
        conditions_after=_came_true(step, gate, checks),
    )


def _with_nothing_known(step: Step) -> Step:
    """A step without what came of its act, before another one."""
    return replace(step, evidence=(), conditions_after={}, stopped_after=None, started_after=None)


def _evidence(checks: tuple[Check, ...]) -> tuple[str, ...]:
    return tuple(str(check) for check in checks)


def _came_true(step: Step, gate: GateState, checks: tuple[Check, ...]) -> dict[str, float]:
    """By condition, after how many seconds from the announced restart it came true and stayed so."""
    return {
        check.subject: round(max(0.0, gate.true_since[check.subject] - step.restarted_after), 1)
        for check in checks
        if check.subject in gate.true_since
    }
