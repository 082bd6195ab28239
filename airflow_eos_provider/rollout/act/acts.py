"""What a roll does to one worker: edit its configuration, restart it, restore that; and to failed tasks.

Each is done only with the journal's permission, asked for right before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    PlanMovedError,
    RolloutPausedError,
    UnreachableError,
)
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.rollout.hosts.host import (
    NotRestartedError,
    RestartPendingError,
    RestartRequest,
    WorkerStartError,
)
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent, RestartEvent
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.plan.plan import Plan
from airflow_eos_provider.rollout.settings import RolloutSettings

#: A restart of failed tasks that meets a rebalance is repeated for so long, seconds: the gate's hold begins after it.
RESTART_TASKS_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Acts:
    """The acts of one roll; :class:`~airflow_eos_provider.rollout.act.roll.Roll` announces them."""

    rollout_id: str
    plan: Plan
    observer: Observer
    journal: Journal
    settings: RolloutSettings
    report: Callable[[str], None]

    def write_edit(self, worker_id: str) -> None:
        """Change a worker's configuration as planned, unless that is done already.

        :raises FencedError: another controller has taken over.
        :raises PlanMovedError: it is not the one that was planned for.
        :raises RolloutPausedError: it cannot be changed.
        """
        change = self.plan.change(worker_id)
        host = self.observer.hosts[worker_id]
        facts = host.observe()
        if facts.digest == change.config_after:
            return
        self._permit(worker_id, "change")
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

    def restart(self, worker_id: str, *, replaces: str, on_event: OnEvent) -> None:
        """Stop a worker and start it by its owner's command; once begun, it ends without this process.

        :param replaces: start token of the process that is to be replaced.
        :param on_event: receives what happens, before it is reported.
        :raises FencedError: another controller has taken over.
        :raises RolloutPausedError: its host cannot be reached, and a restart that was begun there ends there; or the
            host refuses it before anything is stopped, or takes longer for it than is waited.
        :raises EosError: it could not be stopped, or it ended at once.
        """

        def hear(event: RestartEvent) -> None:
            on_event(event)
            self.report(f"{worker_id}: {event}")

        self.observer.session.hang_up()
        try:
            self.observer.hosts[worker_id].restart(
                RestartRequest(
                    stop_grace_seconds=self.settings.stop_grace_seconds,
                    on_event=hear,
                    permit=lambda act: self._permit(worker_id, act),
                    rollout=self.rollout_id,
                    replaces=replaces,
                )
            )
        except WorkerStartError:
            raise
        except (NotRestartedError, RestartPendingError) as error:  # the worker is not to blame, and is not restored
            raise RolloutPausedError(
                error.found,
                expected=error.expected,
                remedy=f"{error.remedy or 'Resolve that.'} Then apply the same plan again to resume.",
            ) from error
        except UnreachableError as error:  # the worker is not to blame, and is not restored
            raise RolloutPausedError(
                f"The host of {worker_id} cannot be reached, so eos cannot tell whether it was restarted: "
                f"{error.found}",
                remedy=f"{error.remedy or 'Make it reachable.'} Then apply the same plan again to resume.",
            ) from error

    def restore_edit(self, worker_id: str) -> None:
        """Make a worker's configuration what it was before this roll.

        :raises FencedError: another controller has taken over.
        :raises EosError: it cannot be done, or it was edited since.
        """
        change = self.plan.change(worker_id)
        if change.config_before == change.config_after:
            return
        self._permit(worker_id, "change")
        self.observer.hosts[worker_id].restore(expect=change.config_after, original=change.config_before)

    def restart_failed_tasks(self, connectors: Mapping[str, str], observation: Observation) -> None:
        """One restart of tasks that may run after it: Connect never tries that by itself.

        :param connectors: why a task failed, by connector.
        :raises FencedError: another controller has taken over.
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

    def _permit(self, worker_id: str, act: Literal["change", "stop", "start"]) -> None:
        """Asked right before a worker is touched: this process may have been stopped since it announced that.

        Between the answer and the act lie microseconds. A process that is stopped just there and goes on after its
        lease has ended still does that one act: it changes the configuration as planned, which the next controller sees
        by the digest; or it restarts that worker once more, by its configuration as it is then, possibly while another
        one restarts.
        """
        self._confirm(f"{worker_id}: {act}")

    def _confirm(self, act: str) -> None:
        """See :meth:`Journal.confirm`."""
        try:
            self.journal.confirm(act)
        except (ConfigurationError, UnreachableError) as error:
            raise RolloutPausedError(
                f"Not done: {act}. eos cannot tell whether another controller has taken over: {error.found}",
                expected=error.expected,
                remedy=f"{error.remedy or 'Make the broker answer.'} Then apply the same plan again.",
            ) from error
