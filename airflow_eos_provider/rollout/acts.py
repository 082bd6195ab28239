"""What a roll does to one worker: change its file, restart it, put its former file back.

Each is done only with the journal's permission, asked for right before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from airflow_eos_provider.errors import EosError, PlanMovedError, RolloutPausedError, UnreachableError
from airflow_eos_provider.rollout.journal import Journal
from airflow_eos_provider.rollout.observer import Observer
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.rollout.settings import RolloutSettings


@dataclass(frozen=True, slots=True)
class Acts:
    """The acts of one roll; :class:`~airflow_eos_provider.rollout.roll.Roll` announces them."""

    plan: Plan
    observer: Observer
    journal: Journal
    settings: RolloutSettings
    report: Callable[[str], None]

    def write_file(self, worker_id: str) -> None:
        """Change a worker's file as planned, unless that is done already.

        :raises FencedError: another controller has taken over.
        :raises PlanMovedError: the file is not the one that was planned.
        :raises RolloutPausedError: it cannot be changed.
        """
        change = self.plan.change(worker_id)
        host = self.observer.hosts[worker_id]
        facts = host.observe()
        if facts.config_sha256 == change.config_after:
            return
        self._permit(worker_id, "change")
        try:
            written = host.write_properties(change.edits(self.plan.target), expect_sha256=change.config_before)
        except PlanMovedError:
            raise
        except EosError as error:
            raise RolloutPausedError(
                f"The file of {worker_id} could not be changed, so it was not restarted: {error.found}",
                expected=error.expected,
                remedy=f"{error.remedy or 'Settle that.'} Then apply the same plan again.",
            ) from error
        if written != change.config_after:
            raise PlanMovedError(f"The file of {worker_id} did not become what the plan says.", remedy="Plan again.")

    def restart(self, worker_id: str) -> None:
        """Stop a worker and start it by its owner's command.

        :raises FencedError: another controller has taken over.
        :raises EosError: it could not be stopped, or it ended at once.
        """
        self.observer.hosts[worker_id].restart(
            stop_grace_seconds=self.settings.stop_grace_seconds,
            on_event=lambda event: self.report(f"{worker_id}: {event}"),
            permit=lambda act: self._permit(worker_id, act),
        )

    def put_file_back(self, worker_id: str) -> None:
        """Make a worker's file what it was before this roll.

        :raises FencedError: another controller has taken over.
        :raises EosError: it cannot be done, or somebody has edited the file since.
        """
        change = self.plan.change(worker_id)
        if change.config_before == change.config_after:
            return
        self._permit(worker_id, "change")
        self.observer.hosts[worker_id].restore(expect_sha256=change.config_after, original_sha256=change.config_before)

    def _permit(self, worker_id: str, act: Literal["change", "stop", "start"]) -> None:
        """Asked right before a worker is touched: this process may have been stopped since it announced that.

        Between the answer and the act lie microseconds. If this process is stopped just there, and goes on after its
        lease, it does the one act that it was at: it changes the file as its plan says, which the digests show to
        whoever comes next; or it stops that worker, and starts it again at once by whatever its file says by then. A
        restart too many is what remains; it could fall together with another worker's.
        """
        try:
            self.journal.confirm(f"{worker_id}: {act}")
        except UnreachableError as error:
            raise RolloutPausedError(
                f"{worker_id}: no {act}, since it cannot be told whether another controller has taken over: "
                f"{error.found}",
                remedy="Make the broker answer, then apply the same plan again.",
            ) from error
