"""What a roll does to one worker: edit its configuration, restart it, restore that; and to failed tasks.

Each act is announced in the journal before, and its result is written after it. The journal's permission is asked for
right before a worker is touched. A worker that fails gets its former configuration back and runs with it before the
roll ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    FencedError,
    GateFailedError,
    PlanMovedError,
    RolloutPausedError,
    UnreachableError,
)
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.journal.records import RolloutState, Step, StepStatus
from airflow_eos_provider.rollout.act.decision import left_after_restore, others_after_restore
from airflow_eos_provider.rollout.act.steps import failed, with_moment
from airflow_eos_provider.rollout.hosts.host import (
    HostFacts,
    Moment,
    NotRestartedError,
    RestartEvent,
    RestartPendingError,
    RestartRequest,
    WorkerStartError,
)
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: A restart of failed tasks that meets a rebalance is repeated for so long, seconds: the gate's hold begins after it.
RESTART_TASKS_SECONDS = 20.0


@dataclass
class Acts:
    """The acts of one roll. Each raises ``FencedError`` once another controller has taken over.

    :param steps: what the journal says has been done, by worker; kept up to date here.
    :param failed_state: what the rollout is if it ends now.
    """

    rollout_id: str
    plan: Plan
    observer: Observer
    journal: Journal
    settings: RolloutSettings
    report: Callable[[str], None]
    steps: dict[str, Step] = field(default_factory=dict)
    failed_state: RolloutState = RolloutState.PAUSED

    def announce(self, step: Step) -> None:
        """Write a step to the journal."""
        self.steps[step.worker_id] = step.appended(self.journal.record(step))

    def note(self, step: Step) -> None:
        """Write down how far a step has come, for whoever follows; where that fails, it is no reason to stop."""
        with suppress(ConfigurationError, UnreachableError):
            self.announce(step)

    def edit_stopped(self, worker_id: str) -> None:
        """Change the configuration of a stopped worker, which is done with that."""
        self._announce_and_edit(Step(worker_id, StepStatus.INTENT, time.time(), mode=str(self.plan.target)))
        self._announce_status(worker_id, StepStatus.PASSED)

    def restart(self, step: Step) -> None:
        """Announce a restart, change the configuration if that is not done, and restart; restore what ends at once."""
        self._announce_and_edit(step)
        try:
            self._restart(step.worker_id, replaces=step.replaces)
        except (FencedError, RolloutPausedError):
            raise  # the worker is not to blame
        except EosError as error:
            self.fail(step.worker_id, (error.found,))
        self._announce_status(step.worker_id, StepStatus.RESTARTED)

    def found_restarted(self, worker_id: str, facts: HostFacts) -> None:
        """Announce that a restart has come to its end whose controller did not, with what is left to know of it."""
        step = self.steps[worker_id]
        if facts.started_at is not None:
            step = with_moment(step, Moment.STARTED, facts.started_at)
        for event in facts.restarted:
            step = with_moment(step, event.moment, event.at)
        self.announce(replace(step, status=StepStatus.RESTARTED, at=time.time()))

    def fail(self, worker_id: str, evidence: tuple[str, ...]) -> NoReturn:
        """Announce that a worker has failed, and restore it."""
        process = self.observer.hosts[worker_id].observe().start_token
        self.announce(failed(self.steps[worker_id], evidence, process, time.time()))
        self.restore(worker_id, evidence)

    def restore(self, worker_id: str, evidence: tuple[str, ...]) -> NoReturn:
        """Restore the worker's former configuration, restart it where it was touched, and stop the roll.

        :raises GateFailedError: always, with the evidence and how the worker is now.
        """
        self.failed_state = RolloutState.FAILED
        then = "use 'eos rollout resume'; if you changed a worker's file, 'eos plan' and 'eos apply --plan HASH'"
        self.report(f"{worker_id}: failed; restoring its former configuration.")
        change, host = self.plan.change(worker_id), self.observer.hosts[worker_id]
        try:
            if change.config_before != change.config_after:
                self._confirm(f"{worker_id}: change")
                host.restore(expect=change.config_after, original=change.config_before)
            outcome = self._run_as_before(worker_id)
            if self.plan.edit_of(worker_id).is_shared:
                others = others_after_restore(self.plan, worker_id, self.observer.observe())
                outcome = f"{outcome}; {others}" if others else outcome
        except FencedError:
            raise
        except EosError as error:
            left = left_after_restore(self.plan, worker_id, host.observe())
            outcome = f"{left}. Restoring it has failed: {error.found.rstrip('.')}"
            then = f"use 'eos rollout resume {self.rollout_id}': it restores {worker_id} and starts it"
        raise GateFailedError(
            f"{worker_id} did not pass its gate:\n"
            + "\n".join(f"  - {line}" for line in evidence)
            + f"\nNow {outcome}.",
            remedy=f"Remove the cause, then {then}.",
        )

    def restart_failed_tasks(self, connectors: Mapping[str, str], observation: Observation) -> None:
        """One restart of tasks that may run after it: Connect never tries that by itself.

        :param connectors: why a task failed, by connector.
        """
        healthy = next((worker for worker in observation.workers if worker.is_healthy), None)
        if healthy is None:
            return
        for connector, reason in connectors.items():
            self._confirm(f"{connector}: restart its failed tasks")
            self.report(f"{connector}: a task failed ({reason}); restarting its failed tasks once.")
            try:
                with self.observer.session.rest(
                    healthy.worker.url,
                    give_up_at=time.monotonic() + RESTART_TASKS_SECONDS,
                    retry_seconds=RESTART_TASKS_SECONDS,
                ) as rest:
                    rest.restart(connector, include_tasks=True, only_failed=True)
            except EosError as error:  # the gate goes on to see those tasks as failed, and answers
                self.report(f"{connector}: its failed tasks could not be restarted: {error.found}")

    def _run_as_before(self, worker_id: str) -> str:
        """Run the worker on its former configuration again; returns in words how it is now."""
        step = self.steps[worker_id]
        worker = self.observer.observe().worker(worker_id)
        if worker.is_running and worker.facts.start_token == step.replaces:
            self._announce_status(worker_id, StepStatus.RESTORED)
            return "its former configuration is back; its process was never touched"
        self._restart(worker_id, replaces=step.failed_process)
        self._announce_status(worker_id, StepStatus.RESTORED)
        deadline = time.monotonic() + self.settings.startup_seconds
        while time.monotonic() < deadline:
            self.journal.renew()
            observation = self.observer.observe()
            if observation.worker(worker_id).is_healthy and worker_id in observation.members:
                return "its former configuration is back, and it runs with it as a healthy member of the group"
            time.sleep(self.settings.poll_interval_seconds)
        return (
            "its former configuration is back and it was restarted with it, "
            f"but it was not healthy within {self.settings.startup_seconds:.0f} s"
        )

    def _announce_and_edit(self, step: Step) -> None:
        """Announce an act and change the configuration; withdraw the announcement if nothing was touched."""
        worker_id, before = step.worker_id, self.steps.get(step.worker_id)
        self.announce(step)
        try:
            self._edit(worker_id)
        except (PlanMovedError, RolloutPausedError):
            facts = self.observer.hosts[worker_id].observe()
            written = facts.digest in (None, self.plan.change(worker_id).config_after)
            if not written and facts.start_token == step.replaces:
                with suppress(ConfigurationError, UnreachableError):
                    self.journal.withdraw(worker_id, before)
                    self.steps.pop(worker_id)
                    self.steps.update({worker_id: before} if before else {})
            raise

    def _edit(self, worker_id: str) -> None:
        """Change a worker's configuration as planned, unless that is done already."""
        change, host = self.plan.change(worker_id), self.observer.hosts[worker_id]
        facts = host.observe()
        if facts.digest == change.config_after:
            return
        self._confirm(f"{worker_id}: change")
        try:
            written = host.edit(change.edits(self.plan.target), expect=change.config_before)
        except PlanMovedError:
            raise
        except EosError as error:
            raise RolloutPausedError(
                f"The {facts.edit} of {worker_id} could not be changed, so the worker was not restarted: {error.found}",
                expected=error.expected,
                remedy=f"{error.remedy or 'Resolve that.'} Then apply the same plan again.",
            ) from error
        if written != change.config_after:
            raise PlanMovedError(f"The {facts.edit} differs from the plan after the change.", remedy="Plan again.")

    def _restart(self, worker_id: str, *, replaces: str) -> None:
        """Stop a worker and start it by its owner's command; once begun, it ends without this process.

        Each of its moments is written down as it comes; one that is not written is in the next record.

        :param replaces: start token of the process that is to be replaced.
        :raises RolloutPausedError: its host cannot be reached, and a restart that was begun there ends there; or the
            host refuses it before anything is stopped, or takes longer for it than is waited.
        """

        def hear(event: RestartEvent) -> None:
            step = with_moment(self.steps[worker_id], event.moment, event.at)
            if step != self.steps[worker_id]:
                self.steps[worker_id] = step
                self.note(step)
            self.report(f"{worker_id}: {event}")

        self.observer.session.hang_up()
        try:
            self.observer.hosts[worker_id].restart(
                RestartRequest(
                    stop_grace_seconds=self.settings.stop_grace_seconds,
                    on_event=hear,
                    permit=lambda act: self._confirm(f"{worker_id}: {act}"),
                    rollout=self.rollout_id,
                    replaces=replaces,
                )
            )
        except WorkerStartError:
            raise
        except (NotRestartedError, RestartPendingError) as error:  # the worker is not to blame, and is not restored
            remedy = f"{error.remedy or 'Resolve that.'} Then apply the same plan again to resume."
            raise RolloutPausedError(error.found, expected=error.expected, remedy=remedy) from error
        except UnreachableError as error:  # the worker is not to blame, and is not restored
            raise RolloutPausedError(
                f"The host of {worker_id} cannot be reached, so eos cannot tell whether it was restarted: "
                f"{error.found}",
                remedy=f"{error.remedy or 'Make it reachable.'} Then apply the same plan again to resume.",
            ) from error

    def _announce_status(self, worker_id: str, status: StepStatus) -> None:
        self.announce(replace(self.steps[worker_id], status=status, at=time.time()))

    def _confirm(self, act: str) -> None:
        """Asked right before a worker is touched: this process may have been stopped since it announced that.

        Between the answer and the act lie microseconds. A process that is stopped just there and goes on after its
        lease has ended still does that one act: it changes the configuration as planned, which the next controller sees
        by the digest; or it restarts that worker once more, by its configuration as it is then, possibly while another
        one restarts.
        """
        try:
            self.journal.confirm(act)
        except (ConfigurationError, UnreachableError) as error:
            raise RolloutPausedError(
                f"Not done: {act}. eos cannot tell whether another controller has taken over: {error.found}",
                expected=error.expected,
                remedy=f"{error.remedy or 'Make the broker answer.'} Then apply the same plan again.",
            ) from error
