"""Carries a plan out: observe, decide, announce in the journal, act, wait for the gate, and again.

Waiting happens in this process, unless its caller can wait elsewhere: then a gate that does not hold at its first look
is handed over as a :class:`GateWait`, and whoever comes back with it goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import (
    EosError,
    FencedError,
    GateFailedError,
    PlanMovedError,
    RolloutPausedError,
    StopRequestedError,
)
from airflow_eos_provider.rollout.acts import Acts
from airflow_eos_provider.rollout.checks import Check, Verdict, overall
from airflow_eos_provider.rollout.conditions import SEEN_FROM_AFAR
from airflow_eos_provider.rollout.decision import Action, ActionKind, decide, expectation, leader_to_restart
from airflow_eos_provider.rollout.expectation import Baseline
from airflow_eos_provider.rollout.gate import GateWatch, connectors_to_heal, evaluate
from airflow_eos_provider.rollout.journal import Journal
from airflow_eos_provider.rollout.logs import Memory
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.observer import Observer, internal_topics
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.rollout.records import RequestKind, RolloutState, Step, StepStatus
from airflow_eos_provider.rollout.settings import RolloutSettings
from airflow_eos_provider.rollout.waiting import HOST_LOOK_SECONDS, LAST_LOOK_SECONDS, GateWait

#: What is awaited is said again after this many seconds, so that a quiet log never looks like a dead one.
REPEAT_SECONDS = 15.0


@dataclass
class Roll:
    """One rollout in progress.

    :param steps: what the journal says has been done, by worker; kept up to date here.
    :param stop_requested: asked between two actions whether the roll shall end, leaving everything as it is.
    :param hands_over: whether a gate that does not hold yet is handed over to the caller instead of waited for here.
    :param waited: the gate that was handed over last.
    :ivar failed_state: what the rollout is when :meth:`run` raises.
    """

    rollout_id: str
    plan: Plan
    baseline: Baseline
    steps: dict[str, Step]
    observer: Observer
    journal: Journal
    settings: RolloutSettings
    report: Callable[[str], None]
    stop_requested: Callable[[], bool] = lambda: False
    hands_over: bool = False
    waited: GateWait | None = None
    failed_state: RolloutState = RolloutState.PAUSED
    _acts: Acts = field(init=False)
    _calm: bool = field(default=False, init=False)
    _delay_ended_for: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._acts = Acts(self.plan, self.observer, self.journal, self.settings, self.report)
        if self.waited is not None:
            self._delay_ended_for.update(self.waited.delay_ended_for)
            self.observer.logs.memory = Memory.from_dict(self.waited.memory)

    def run(self) -> GateWait | None:
        """Roll until every worker is through, or until a gate has to be waited for elsewhere.

        :returns: that gate; None if every worker is through.
        """
        while True:
            self._stop_if_requested()
            observation = self.observer.observe()
            action = decide(self.plan, self.steps, observation)
            if action.kind is ActionKind.DONE:
                self.report(f"Done: {action.reason}.")
                return None
            wait = self._act(action, observation)
            if wait is not None:
                return wait

    def _act(self, action: Action, observation: Observation) -> GateWait | None:
        match action.kind:
            case ActionKind.PAUSE:
                raise RolloutPausedError(
                    f"The roll stands still: {action.reason}.",
                    remedy="Settle that, then apply the same plan again; it goes on where it stands.",
                )
            case ActionKind.REFUSE:
                raise PlanMovedError(f"The roll stands still: {action.reason}.", remedy="Put it right or plan again.")
            case ActionKind.CHANGE_FILE:
                self._change_stopped(action)
            case ActionKind.ROLL | ActionKind.RESTART:
                return self._restart(action, observation)
            case ActionKind.GATE:
                return self._pass_gate(action.worker_id, observation)
            case ActionKind.RESTORE:
                self._restore(action.worker_id, (action.reason,))
        return None

    def _stop_if_requested(self) -> None:
        """Asked between two actions only: within one, a worker may be stopped and not yet started."""
        if self.stop_requested():
            raise RolloutPausedError(
                "The roll was asked to stop: no further action is begun, the cluster is left as it is.",
                remedy="Apply the same plan again to go on where it stands.",
            )
        request = self.journal.request()
        if request is None:
            return
        self.failed_state = request.kind.leads_to
        if request.kind is RequestKind.PAUSE:
            remedy = "To go on where it stands: 'eos rollout resume', or apply the same plan again."
        else:
            remedy = "This rollout is never taken up again. The cluster is as it is; make a new plan for it."
        raise StopRequestedError(f"The roll has stopped: {request}. The cluster is left as it is.", remedy=remedy)

    def _change_stopped(self, action: Action) -> None:
        worker_id = action.worker_id
        self._announce(Step(worker_id, StepStatus.INTENT, time.time(), mode=str(self.plan.target)))
        self._acts.write_file(worker_id)
        self.report(f"{worker_id}: file changed; {action.reason}.")
        self._announce(replace(self.steps[worker_id], status=StepStatus.PASSED, at=time.time()))

    def _restart(self, action: Action, observation: Observation) -> GateWait | None:
        worker_id = action.worker_id
        begun = self._is_half_done(worker_id, observation)
        if not begun and not (self._calm and self._is_fit(observation)):
            return self._wait_until_calm(observation)  # then look again: the leader may have moved meanwhile
        now = time.time()
        before = self.steps[worker_id] if begun else None
        tasks = tuple(f"{c}/{n}" for c, n in sorted(observation.tasks_on(worker_id)))
        step = Step(
            worker_id,
            StepStatus.INTENT,
            now,
            restarted_after=now,
            tasks=before.tasks if before else tasks,
            led=before.led if before else worker_id == observation.leader_id,
            mode=str(self.plan.target),
            seconds=before.seconds if before else 0.0,
            tasks_stood_seconds=before.tasks_stood_seconds if before else 0.0,
        )
        self.report(f"{worker_id}: {action.kind} ({action.reason}); it holds {len(step.tasks)} tasks.")
        self._announce_and_restart(step)
        return None

    def _is_half_done(self, worker_id: str, observation: Observation) -> bool:
        """Whether an announced restart has touched the worker already, so that it must be finished at once."""
        step = self.steps.get(worker_id)
        if step is None or step.status not in (StepStatus.INTENT, StepStatus.RESTARTED):
            return False
        change, worker = self.plan.change(worker_id), observation.worker(worker_id)
        is_written = worker.facts.config_sha256 == change.config_after != change.config_before
        return is_written or not worker.is_running

    def _is_fit(self, observation: Observation) -> bool:
        """Whether every condition holds on this very look: what held a moment ago may have ended since."""
        expected = expectation(self.plan, self.steps, observation, self.baseline)
        return overall(evaluate(expected, observation)) is Verdict.PASS

    def _announce_and_restart(self, step: Step) -> None:
        worker_id = step.worker_id
        self._announce(step)
        self._calm = False
        self._acts.write_file(worker_id)
        try:
            self._acts.restart(worker_id)
        except (FencedError, RolloutPausedError):
            raise  # the worker is not to blame
        except EosError as error:
            self._fail(worker_id, (error.found,))
        self._announce(replace(step, status=StepStatus.RESTARTED, at=time.time()))

    def _wait_until_calm(self, observation: Observation) -> GateWait | None:
        watch = self._watch(None, observation)
        outcome = self._wait(watch, None)
        if isinstance(outcome, GateWait):
            return outcome
        if outcome is not Verdict.PASS:
            raise RolloutPausedError(
                "The cluster is not fit for a restart:\n" + _lines(watch.checks),
                remedy="Settle that, then apply the same plan again.",
            )
        self._calm = True
        return None

    def _pass_gate(self, worker_id: str, observation: Observation) -> GateWait | None:
        watch = self._watch(worker_id, observation)
        outcome = self._wait(watch, worker_id)
        if outcome is None or isinstance(outcome, GateWait):
            return outcome  # without one, another worker was restarted on this one's behalf: look again
        if outcome is Verdict.FAIL:
            self._fail(worker_id, tuple(str(check) for check in watch.checks if not check.passed))
        if outcome is Verdict.INCONCLUSIVE:
            raise RolloutPausedError(
                f"{worker_id} is restarted, but it cannot be told whether it is well:\n{_lines(watch.checks)}",
                remedy="Settle that, then apply the same plan again; it goes on at this gate.",
            )
        step = self.steps[worker_id]
        now = time.time()
        passed = replace(
            step,
            status=StepStatus.PASSED,
            at=now,
            seconds=step.seconds + now - step.restarted_after,
            tasks_stood_seconds=step.tasks_stood_seconds + watch.stood_seconds(step.restarted_after),
            evidence=tuple(str(check) for check in watch.checks),
        )
        self._announce(passed)
        self._calm = True
        self.report(
            f"{worker_id}: gate passed after {passed.seconds:.1f} s; "
            f"its {len(step.tasks)} tasks stood still for {passed.tasks_stood_seconds:.1f} s."
        )
        return None

    def _watch(self, worker_id: str | None, observation: Observation) -> GateWatch:
        waited = self._waited_for(worker_id)
        if waited is not None:
            watch = GateWatch.from_dict(waited.watch)
            # Nobody may have looked for a long time, so the last word is a look of this process.
            watch.deadline = max(watch.deadline, time.time() + LAST_LOOK_SECONDS)
            return watch
        properties = observation.worker(worker_id).facts.properties if worker_id else {}
        timeout = self.settings.gate_timeout(properties, observation.rebalance_delay_ms)
        step = self.steps.get(worker_id) if worker_id else None
        return GateWatch(
            polls=self.settings.polls,
            hold_seconds=self.settings.hold(properties),
            deadline=time.time() + timeout,
            tasks=step.tasks if step else (),
            after_delay_seconds=self.settings.after_delay(properties),
        )

    def _restarted_after(self, worker_id: str | None) -> float:
        """The restart that a gate follows: this worker's, or (None) the last of all."""
        if worker_id is not None:
            return self.steps[worker_id].restarted_after
        return max((step.restarted_after for step in self.steps.values()), default=0.0)

    def _waited_for(self, worker_id: str | None) -> GateWait | None:
        """The gate that was handed over, if it is this one."""
        is_this = self.waited is not None and self.waited.is_for(worker_id, self._restarted_after(worker_id))
        return self.waited if is_this else None

    def _wait(self, watch: GateWatch, worker_id: str | None) -> Verdict | GateWait | None:
        """Poll until the gate has answered; says what is awaited and until when.

        :returns: the answer; or the gate, if it is to be waited for elsewhere; None if the leader was restarted
            meanwhile to end a rebalance delay.
        """
        who = worker_id or "before the first restart"
        said, said_at, healed = "", 0.0, False
        hands_over, waited = self.hands_over, self._waited_for(worker_id)
        if waited is not None:
            healed, hands_over = waited.healed, hands_over and time.time() < waited.watch["deadline"]
            self.waited = None
        while True:
            self._stop_if_requested()
            self.journal.renew()
            observation = self.observer.observe()
            expected = expectation(self.plan, self.steps, observation, self.baseline, worker_id)
            answer = watch.poll(expected, observation)
            line = watch.status_line()
            if line != said or time.time() - said_at > REPEAT_SECONDS:
                self.report(f"{who}: {line}")
                said, said_at = line, time.time()
            if answer is not None:
                return answer
            failed = connectors_to_heal(expected, observation)
            if failed and not healed:
                healed = True
                self._restart_failed_tasks(failed, observation)
            if worker_id is not None and self._end_delay(worker_id, observation, watch):
                return None
            # What only the hosts tell is waited for here, and so is the end of a hold.
            if hands_over and overall(evaluate(expected, observation, SEEN_FROM_AFAR)) is not Verdict.PASS:
                return self._to_hand_over(watch, worker_id, observation, healed)
            time.sleep(self.settings.poll_interval_seconds)

    def _to_hand_over(
        self, watch: GateWatch, worker_id: str | None, observation: Observation, healed: bool
    ) -> GateWait:
        topics = internal_topics({worker.worker_id: worker.facts for worker in observation.workers})
        return GateWait(
            rollout_id=self.rollout_id,
            worker_id=worker_id,
            restarted_after=self._restarted_after(worker_id),
            watch=watch.to_dict(),
            memory=self.observer.logs.memory.to_dict(),
            config_topic=topics.config,
            offsets_topic=topics.offsets,
            look_at=time.time() + HOST_LOOK_SECONDS,
            healed=healed,
            delay_ended_for=tuple(sorted(self._delay_ended_for)),
        )

    def _end_delay(self, worker_id: str, observation: Observation, watch: GateWatch) -> bool:
        """Restart the leader, which is through, once more, where that ends a rebalance delay sooner than waiting."""
        expected = expectation(self.plan, self.steps, observation, self.baseline, worker_id)
        remaining = watch.delay_remaining(observation.at)
        leader = leader_to_restart(self.plan, self.steps, observation, expected, remaining)
        if leader is None or worker_id in self._delay_ended_for:
            return False
        self._delay_ended_for.add(worker_id)
        now = time.time()
        tasks = tuple(f"{c}/{n}" for c, n in sorted(observation.tasks_on(leader)))
        before = self.steps.get(leader) or Step(leader, StepStatus.PASSED, now, led=True, mode=str(self.plan.target))
        self.report(
            f"{leader}: restart once more; it leads, is through, and its successor waits for no rebalance delay."
        )
        step = replace(before, status=StepStatus.INTENT, at=now, restarted_after=now, tasks=tasks)
        if leader == worker_id:
            waited = now - before.restarted_after
            stood = before.tasks_stood_seconds + (waited if before.tasks else 0.0)
            step = replace(step, seconds=before.seconds + waited, tasks_stood_seconds=stood)
        self._announce_and_restart(step)
        return True

    def _restart_failed_tasks(self, connectors: Mapping[str, str], observation: Observation) -> None:
        """One restart, once per gate, of tasks that it may heal: Connect never tries that by itself."""
        healthy = next((w for w in observation.workers if w.is_healthy), None)
        if healthy is None:
            return
        for connector, reason in connectors.items():
            self.report(f"{connector}: a task failed ({reason}); restarting its failed tasks once.")
            try:
                with ConnectRest(healthy.worker.url, self.observer.cluster.rest) as rest:
                    rest.restart(connector, include_tasks=True, only_failed=True)
            except EosError as error:  # the gate goes on to see those tasks as failed, and answers
                self.report(f"{connector}: its failed tasks could not be restarted: {error.found}")

    def _fail(self, worker_id: str, evidence: tuple[str, ...]) -> None:
        self._announce(replace(self.steps[worker_id], status=StepStatus.FAILED, at=time.time(), evidence=evidence))
        self._restore(worker_id, evidence)

    def _restore(self, worker_id: str, evidence: tuple[str, ...]) -> None:
        """Put the worker's former file back, restart it where it was touched, and stop the roll."""
        self.failed_state = RolloutState.FAILED
        self.report(f"{worker_id}: failed; putting its former file back.")
        try:
            self._acts.put_file_back(worker_id)
            outcome = self._restart_restored(worker_id)
        except FencedError:
            raise
        except EosError as error:
            outcome = f"putting its former file back did not succeed: {error.found}"
        raise GateFailedError(
            f"{worker_id} did not pass its gate:\n"
            + "\n".join(f"  - {line}" for line in evidence)
            + f"\nNow {outcome}.",
            remedy="Mend the cause; then apply the same plan again, or plan anew. The other workers are as they are.",
        )

    def _restart_restored(self, worker_id: str) -> str:
        """Run the worker on its former file again.

        :returns: in words, how it is now.
        """
        step = self.steps[worker_id]
        worker = self.observer.observe().worker(worker_id)
        if worker.started_at is not None and worker.started_at < step.restarted_after:
            self._announce(replace(step, status=StepStatus.RESTORED, at=time.time()))
            return "its former file is back; its process was never touched"
        self._acts.restart(worker_id)
        self._announce(replace(self.steps[worker_id], status=StepStatus.RESTORED, at=time.time()))
        deadline = time.monotonic() + self.settings.startup_seconds
        while time.monotonic() < deadline:
            self.journal.renew()
            observation = self.observer.observe()
            if observation.worker(worker_id).is_healthy and worker_id in observation.members:
                return "its former file is back, and it runs with it as a healthy member of the group"
            time.sleep(self.settings.poll_interval_seconds)
        return (
            "its former file is back and it was restarted with it, "
            f"but it was not healthy within {self.settings.startup_seconds:.0f} s"
        )

    def _announce(self, step: Step) -> None:
        appended_at_ms = self.journal.record(step)
        self.steps[step.worker_id] = replace(step, appended_at_ms=appended_at_ms)


def _lines(checks: tuple[Check, ...]) -> str:
    return "\n".join(f"  - {check}" for check in checks if not check.passed)
