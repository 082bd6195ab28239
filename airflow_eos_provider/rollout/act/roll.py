"""Carries a plan out, in a loop: observe, decide, announce in the journal, act, wait for the gate.

This process waits for the gate itself, unless its caller can defer: then a gate that does not pass its first poll is
handed over as a :class:`GateState`, and the process that returns with it resumes at that gate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_eos_provider.errors import PlanMovedError, RolloutPausedError, StopRequestedError
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.journal.records import RequestKind, Step, StepStatus
from airflow_eos_provider.rollout.act import at_gate
from airflow_eos_provider.rollout.act.acts import Acts
from airflow_eos_provider.rollout.act.at_gate import AtGate
from airflow_eos_provider.rollout.act.decision import Action, ActionKind, decide, expectation
from airflow_eos_provider.rollout.act.steps import (
    announced_again,
    announced_restart,
    at_its_gate,
    further_restart,
    passed_gate,
)
from airflow_eos_provider.rollout.gate.expectation import Baseline, ended_elsewhere, reported_changes
from airflow_eos_provider.rollout.gate.gate import GateAnswer, evaluate
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.observation import Observation

#: A host that cannot be looked at, between two acts, is looked at again for so many seconds before the roll pauses: a
#: connection that was lost, a machine that was busy.
UNSEEN_SECONDS = 20.0

#: What is awaited is reported again after this many seconds, so that a quiet log never looks like a dead one.
REPEAT_SECONDS = 15.0


@dataclass(kw_only=True)
class Roll(Acts):
    """One rollout in progress.

    :param stop_requested: asked between two actions whether to stop, leaving everything as it is.
    :param hands_over: whether a gate that does not hold yet is handed over to the caller instead of waited for here.
    :param gate: the gate that was handed over last.
    :param seen: the look that the roll was begun on, under the lease; its first. None to look anew.
    """

    baseline: Baseline
    stop_requested: Callable[[], bool] = lambda: False
    hands_over: bool = False
    gate: GateState | None = None
    seen: Observation | None = None
    _stable: bool = field(default=False, init=False)
    _delay_ended_for: set[str] = field(default_factory=set, init=False)
    _ended: set[str] = field(default_factory=set, init=False)
    _reported: tuple[str, float] = field(default=("", 0.0), init=False)

    def __post_init__(self) -> None:
        if self.gate is not None:
            self._delay_ended_for.update(self.gate.delay_ended_for)
            self.observer.logs.memory = self.gate.memory

    def run(self) -> GateState | None:
        """Roll until every worker is done, or until a gate has to be waited for elsewhere."""
        try:
            while True:
                action, observation = self._next_action()
                if action.kind is ActionKind.DONE:
                    self.report(f"Done: {action.reason}.")
                    return None
                gate = self._carry_out(action, observation)
                if gate is not None:
                    return gate
        except PlanMovedError as error:
            if not self.steps:
                raise
            raise RolloutPausedError(error.found, expected=error.expected, remedy=error.remedy) from error

    def _next_action(self) -> tuple[Action, Observation]:
        """What is to be done, by a look that has seen every host, if one comes within :data:`UNSEEN_SECONDS`."""
        give_up_at: float | None = None
        while True:
            self._stop_if_requested()
            observation, self.seen = self.seen or self.observer.observe(), None
            action = decide(self.plan, self.steps, observation)
            if not action.may_pass or (give_up_at is not None and time.monotonic() >= give_up_at):
                return action, observation
            if give_up_at is None:
                give_up_at = time.monotonic() + UNSEEN_SECONDS
                self.report(f"{action.worker_id}: {action.reason}; checking again for {UNSEEN_SECONDS:.0f} s")
            self.journal.renew()
            time.sleep(self.settings.poll_interval_seconds)

    def _carry_out(self, action: Action, observation: Observation) -> GateState | None:
        worker_id = action.worker_id
        match action.kind:
            case ActionKind.PAUSE:
                raise RolloutPausedError(
                    f"The roll pauses: {action.reason}.",
                    remedy="Resolve that, then apply the same plan again to resume.",
                )
            case ActionKind.REFUSE:
                raise PlanMovedError(f"The roll pauses: {action.reason}.", remedy="Correct it, or make a new plan.")
            case ActionKind.CHANGE_FILE:
                self.edit_stopped(worker_id)
                self.report(f"{worker_id}: configuration changed; {action.reason}.")
            case ActionKind.ROLL | ActionKind.RESTART:
                return self._restart_in_a_stable_group(action, observation)
            case ActionKind.GATE:
                if self.steps[worker_id].status is StepStatus.INTENT:
                    self.found_restarted(worker_id, observation.worker(worker_id).facts)
                return self._pass_gate(worker_id, observation)
            case ActionKind.RESTORE:
                self.restore(worker_id, (action.reason,))
        return None

    def _stop_if_requested(self) -> None:
        """Asked between two actions only: within one, a worker may be stopped and not yet started."""
        if self.stop_requested():
            raise RolloutPausedError(
                "The roll was asked to stop: it begins no further action and leaves the cluster unchanged.",
                remedy="Apply the same plan again to resume.",
            )
        request = self.journal.request()
        if request is None:
            return
        self.failed_state = request.kind.leads_to
        if request.kind is RequestKind.PAUSE:
            remedy = "To resume: 'eos rollout resume', or apply the same plan again."
        else:
            remedy = "An aborted rollout cannot be resumed. Make a new plan for the cluster's current state."
        raise StopRequestedError(f"The roll has stopped: {request}. The cluster is left unchanged.", remedy=remedy)

    # one worker's restart

    def _restart_in_a_stable_group(self, action: Action, observation: Observation) -> GateState | None:
        worker_id, now = action.worker_id, time.time()
        if self._is_half_done(worker_id, observation):
            step = announced_again(self.steps[worker_id], now)
        elif self._may_begin(worker_id, observation):
            step = announced_restart(worker_id, self.plan.target, observation, now)
        else:
            return self._wait_until_stable(observation)  # then look again: another worker may lead by then
        self.report(f"{worker_id}: {action.kind} ({action.reason}); it runs {len(step.tasks)} tasks.")
        self._stable = False
        self.restart(step)
        return None

    def _is_half_done(self, worker_id: str, observation: Observation) -> bool:
        """Whether an announced restart has touched the worker already, so that it must be finished at once."""
        step = self.steps.get(worker_id)
        if step is None or step.status not in (StepStatus.INTENT, StepStatus.RESTARTED):
            return False
        change, worker = self.plan.change(worker_id), observation.worker(worker_id)
        is_written = worker.facts.digest == change.config_after != change.config_before
        is_own = not self.plan.edit_of(worker_id).was_written_for_another(worker_id, self.steps)
        return (is_written and is_own) or not worker.is_running

    def _may_begin(self, worker_id: str, observation: Observation) -> bool:
        """Whether every condition holds on this very look: what held a moment ago may have ended since.

        A worker that a roll left down has nothing to lose, and while it is down not every condition can hold.
        """
        if not observation.worker(worker_id).is_running:
            return True
        expected = expectation(self.plan, self.steps, observation, self.baseline)
        return self._stable and overall(evaluate(expected, observation)) is Verdict.PASS

    def _restart_leader(self, leader: str, worker_id: str, observation: Observation) -> None:
        """Restart the leader, which is done, once more: that ends a rebalance delay sooner than waiting."""
        self._delay_ended_for.add(worker_id)
        now = time.time()
        before = self.steps.get(leader) or Step(leader, StepStatus.PASSED, now, led=True, mode=str(self.plan.target))
        self.report(f"{leader}: restart the leader, which is done, once more: this ends the rebalance delay.")
        self._stable = False
        self.restart(further_restart(before, observation, now, at_its_own_gate=leader == worker_id))

    # gates

    def _wait_until_stable(self, observation: Observation) -> GateState | None:
        gate, answer = self._wait(None, observation)
        if answer is None:
            return gate
        if answer.verdict is not Verdict.PASS:
            raise RolloutPausedError(
                "The checks before a restart did not pass:\n" + _lines(answer),
                remedy="Resolve that, then apply the same plan again.",
            )
        self._stable = True
        return None

    def _pass_gate(self, worker_id: str, observation: Observation) -> GateState | None:
        gate, answer = self._wait(worker_id, observation)
        if gate is None or answer is None:
            return gate
        if answer.verdict is Verdict.FAIL:
            self.fail(worker_id, tuple(str(check) for check in answer.open_checks))
        if answer.verdict is Verdict.INCONCLUSIVE:
            raise RolloutPausedError(
                f"{worker_id} was restarted, but eos cannot prove that it is healthy:\n{_lines(answer)}",
                remedy="Resolve that, then apply the same plan again to resume at this gate.",
            )
        passed = passed_gate(self.steps[worker_id], gate, answer.checks, time.time())
        self.announce(passed)
        self._stable = True
        self.report(
            f"{worker_id}: gate passed after {passed.seconds:.1f} s; "
            f"its {len(passed.tasks)} tasks were unassigned for {passed.task_downtime_seconds:.1f} s."
        )
        return None

    def _wait(
        self, worker_id: str | None, observation: Observation
    ) -> tuple[GateState, GateAnswer | None] | tuple[None, None]:
        """Look until the gate has answered; reports what is awaited and until when.

        A refusal that waiting cannot change counts at the second look in a row: the parts of one look are not of one
        moment, and a process that is just starting or ending can look like two, or like none.

        :returns: the gate with its answer; the gate alone, if it is handed over; nothing, if the leader was restarted
            to end a rebalance delay, so that another gate may be due.
        """
        gate, hands_over = self._begin_or_take_up(worker_id, observation)
        refused_before: frozenset[str] = frozenset()
        while True:
            self.journal.renew()
            gate, seen = at_gate.look_at(gate, self.plan, self.steps, self.baseline, observation)
            self._note_what_holds(gate, seen, observation)
            self._report_what_is_awaited(gate, seen, observation)
            needs_a_second_look = not seen.answer.refused_by <= refused_before
            refused_before = seen.answer.refused_by
            if not needs_a_second_look:
                if seen.answer.verdict is not None:
                    return gate, seen.answer
                if seen.failed:
                    gate = replace(gate, failed_tasks_restarted=True)
                    self.restart_failed_tasks(seen.failed, observation)
                if seen.leader is not None:
                    self._restart_leader(seen.leader, gate.subject, observation)
                    return None, None
                # What only the hosts show is waited for here, and so is the end of a hold.
                if hands_over and not at_gate.holds_remotely(seen.expected, observation):
                    return at_gate.handed_over(gate, seen.expected, observation, self.observer.logs.memory), None
            time.sleep(gate.pause_seconds(self.settings.poll_interval_seconds, now=time.time()))
            self._stop_if_requested()
            observation = self.observer.observe()

    def _begin_or_take_up(self, worker_id: str | None, observation: Observation) -> tuple[GateState, bool]:
        """The gate that was handed over, if it is this one, otherwise a new one; and whether it may be handed over."""
        now, waited = time.time(), self.gate
        if waited is not None and waited.is_for(worker_id, at_gate.restart_id(self.steps, worker_id)):
            self.gate = None
            return waited.taken_up(now).with_time_for_a_look(now), self.hands_over and now < waited.deadline
        gate = at_gate.begin(self.rollout_id, worker_id, self.steps, observation, self.settings, now)
        return replace(gate, delay_ended_for=tuple(sorted(self._delay_ended_for))), self.hands_over

    def _note_what_holds(self, gate: GateState, seen: AtGate, observation: Observation) -> None:
        """Write down which conditions of a worker's gate hold, where others do than before, for whoever follows.

        A look that the broker did not answer is no moment to write. What is not written, the next look writes.
        """
        step = self.steps.get(gate.worker_id or "")
        if step is None or step.status is not StepStatus.RESTARTED or observation.group is None:
            return
        now_at = at_its_gate(step, gate, seen.answer.checks)
        if now_at.conditions_after != step.conditions_after:
            self.note(now_at)

    def _report_what_is_awaited(self, gate: GateState, seen: AtGate, observation: Observation) -> None:
        """What is awaited when it changes, and at once which worker has ended or is back: the gate waits for it."""
        ended = ended_elsewhere(seen.expected, observation)
        for change in reported_changes(self._ended, ended):
            self.report(change)
        self._ended = set(ended)
        line, (reported, at) = f"{gate.subject}: {seen.answer.status_line(gate)}", self._reported
        if line != reported or time.time() - at > REPEAT_SECONDS:
            self.report(line)
            self._reported = line, time.time()


def _lines(answer: GateAnswer) -> str:
    return "\n".join(f"  - {check}" for check in answer.open_checks)
