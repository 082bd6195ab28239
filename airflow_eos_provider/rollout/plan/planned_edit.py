"""An edit of a plan: written once, however many workers it serves, while each of them is restarted by itself.

So the content follows from the last result of any worker that the edit serves, not from one worker's own step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.journal.records import Step, StepStatus

#: After these the edit is as planned, or as it was before.
_RESULTS = (StepStatus.RESTARTED, StepStatus.PASSED, StepStatus.RESTORED)

#: Between the announcement and the result of a write.
_OPEN = (StepStatus.INTENT, StepStatus.FAILED)


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """One edit of a plan.

    :param name: see :class:`~airflow_eos_provider.rollout.hosts.host.Edit`.
    :param before: SHA-256 of what it held when the plan was made.
    :param after: SHA-256 of what it holds when the plan is carried out.
    :param workers: the workers that it serves.
    """

    name: str
    before: str
    after: str
    workers: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        return len(self.workers) > 1

    def may_hold(self, steps: Mapping[str, Step]) -> tuple[str, ...]:
        """The digests that this roll may have left. Another's edit to the very same bytes would have no backup."""
        if any(steps[worker].status in _OPEN for worker in self.workers if worker in steps):
            return (self.before, self.after)
        return (self.after,) if self.is_as_planned(steps) else (self.before,)

    def is_as_planned(self, steps: Mapping[str, Step]) -> bool:
        """Whether the last result of a write left what the plan says; not so before the first one."""
        results = [steps[worker] for worker in self.workers if worker in steps and steps[worker].status in _RESULTS]
        last = max(results, key=lambda step: (step.appended_at_ms, step.at), default=None)
        return last is not None and last.status is not StepStatus.RESTORED

    def was_written_for_another(self, worker_id: str, steps: Mapping[str, Step]) -> bool:
        """Whether a step of another worker may have written it, so that it says nothing about this worker's own."""
        return any(worker in steps for worker in self.workers if worker != worker_id)
