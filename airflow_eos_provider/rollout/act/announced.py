"""Acts on one worker with their announcement: the intent is in the journal before the act, the result after it.

A worker that fails gets its former configuration back and runs with it before the roll ends.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
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
from airflow_eos_provider.journal.records import RolloutState, Step, StepStatus
from airflow_eos_provider.rollout.act.acts import Acts
from airflow_eos_provider.rollout.act.decision import left_after_restore, others_after_restore
from airflow_eos_provider.rollout.act.steps import failed, with_event, with_moment
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.hosts.restart_event import Moment, RestartEvent


@dataclass
class AnnouncedActs:
    """The acts of one roll.

    :param steps: what the journal says has been done, by worker; kept up to date here.
    :ivar failed_state: what the rollout is if it ends now.
    """

    acts: Acts
    steps: dict[str, Step]
    failed_state: RolloutState = RolloutState.PAUSED

    def announce(self, step: Step) -> None:
        """Write a step to the journal.

        :raises FencedError: another controller has taken over.
        """
        self.steps[step.worker_id] = step.appended(self.acts.journal.record(step))

    def note(self, step: Step) -> None:
        """Write down how far a step has come, for whoever follows; where that fails, it is no reason to stop.

        :raises FencedError: another controller has taken over.
        """
        with suppress(ConfigurationError, UnreachableError):
            self.announce(step)

    def edit_stopped(self, worker_id: str) -> None:
        """Change the configuration of a stopped worker, which is done with that."""
        self._announce_and_edit(Step(worker_id, StepStatus.INTENT, time.time(), mode=str(self.acts.plan.target)))
        self._announce_status(worker_id, StepStatus.PASSED)

    def restart(self, step: Step) -> None:
        """Announce a restart, change the configuration if that is not done, and restart.

        :raises GateFailedError: the worker ended at once; the message says how it and its configuration are now.
        """
        worker_id = step.worker_id
        self._announce_and_edit(step)
        try:
            self._restart(worker_id, replaces=step.replaces)
        except (FencedError, RolloutPausedError):
            raise  # the worker is not to blame
        except EosError as error:
            self.fail(worker_id, (error.found,))
        self._announce_status(worker_id, StepStatus.RESTARTED)

    def found_restarted(self, worker_id: str, facts: HostFacts) -> None:
        """Announce that a restart has come to its end whose controller did not, with what is left to know of it."""
        step = self.steps[worker_id]
        if facts.started_at is not None:
            step = with_moment(step, Moment.STARTED, facts.started_at)
        for event in facts.restarted:
            step = with_event(step, event)
        self.announce(replace(step, status=StepStatus.RESTARTED, at=time.time()))

    def fail(self, worker_id: str, evidence: tuple[str, ...]) -> NoReturn:
        """Announce that a worker has failed, and restore it.

        :raises GateFailedError: always.
        """
        process = self.acts.observer.hosts[worker_id].observe().start_token
        self.announce(failed(self.steps[worker_id], evidence, process, time.time()))
        self.restore(worker_id, evidence)

    def restore(self, worker_id: str, evidence: tuple[str, ...]) -> NoReturn:
        """Restore the worker's former configuration, restart it where it was touched, and stop the roll.

        :raises GateFailedError: always, with the evidence and how the worker is now.
        """
        self.failed_state = RolloutState.FAILED
        then = "use 'eos rollout resume'; if you changed a worker's file, 'eos plan' and 'eos apply --plan HASH'"
        self.acts.report(f"{worker_id}: failed; restoring its former configuration.")
        try:
            self.acts.restore_edit(worker_id)
            outcome = self._run_as_before(worker_id)
            if self.acts.plan.edit_of(worker_id).is_shared:
                others = others_after_restore(self.acts.plan, worker_id, self.acts.observer.observe())
                outcome = f"{outcome}; {others}" if others else outcome
        except FencedError:
            raise
        except EosError as error:
            facts = self.acts.observer.hosts[worker_id].observe()
            left = left_after_restore(self.acts.plan, worker_id, facts)
            outcome = f"{left}. Restoring it has failed: {error.found.rstrip('.')}"
            then = f"use 'eos rollout resume {self.acts.rollout_id}': it restores {worker_id} and starts it"
        raise GateFailedError(
            f"{worker_id} did not pass its gate:\n"
            + "\n".join(f"  - {line}" for line in evidence)
            + f"\nNow {outcome}.",
            remedy=f"Remove the cause, then {then}.",
        )

    def _run_as_before(self, worker_id: str) -> str:
        """Run the worker on its former configuration again.

        :returns: in words, how it is now.
        """
        step, observer, settings = self.steps[worker_id], self.acts.observer, self.acts.settings
        worker = observer.observe().worker(worker_id)
        if worker.is_running and worker.facts.start_token == step.replaces:
            self._announce_status(worker_id, StepStatus.RESTORED)
            return "its former configuration is back; its process was never touched"
        self._restart(worker_id, replaces=step.failed_process)
        self._announce_status(worker_id, StepStatus.RESTORED)
        deadline = time.monotonic() + settings.startup_seconds
        while time.monotonic() < deadline:
            self.acts.journal.renew()
            observation = observer.observe()
            if observation.worker(worker_id).is_healthy and worker_id in observation.members:
                return "its former configuration is back, and it runs with it as a healthy member of the group"
            time.sleep(settings.poll_interval_seconds)
        return (
            "its former configuration is back and it was restarted with it, "
            f"but it was not healthy within {settings.startup_seconds:.0f} s"
        )

    def _restart(self, worker_id: str, *, replaces: str) -> None:
        """Restart, and write down each of its moments as it comes; one that is not written is in the next record."""

        def hear(event: RestartEvent) -> None:
            step = with_event(self.steps[worker_id], event)
            if step != self.steps[worker_id]:
                self.steps[worker_id] = step
                self.note(step)

        self.acts.restart(worker_id, replaces=replaces, on_event=hear)

    def _announce_and_edit(self, step: Step) -> None:
        """Announce an act and change the configuration; withdraw the announcement if nothing was touched."""
        worker_id, before = step.worker_id, self.steps.get(step.worker_id)
        self.announce(step)
        try:
            self.acts.write_edit(worker_id)
        except (PlanMovedError, RolloutPausedError):
            facts = self.acts.observer.hosts[worker_id].observe()
            written = facts.digest in (None, self.acts.plan.change(worker_id).config_after)
            if not written and facts.start_token == step.replaces:
                with suppress(ConfigurationError, UnreachableError):
                    self.acts.journal.withdraw(worker_id, before)
                    self.steps.pop(worker_id)
                    self.steps.update({worker_id: before} if before else {})
            raise

    def _announce_status(self, worker_id: str, status: StepStatus) -> None:
        self.announce(replace(self.steps[worker_id], status=status, at=time.time()))
