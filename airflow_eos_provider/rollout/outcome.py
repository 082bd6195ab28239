"""The result of a rollout for each worker: predicted and measured downtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_eos_provider.journal.records import RolloutRecord, Step
from airflow_eos_provider.rollout.plan.roll_plan import Plan


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """How one worker came through.

    :param seconds: from the announcement of its restart to its passed gate.
    :param task_downtime_seconds: for how long its tasks were unassigned.
    :param mode: the mode that it is proven to run in; ``stopped`` if only its file was changed.
    :param predicted_seconds: its predicted task downtime, by the plan; of the plan's two answers the one for
        a leader if it led, else the other. Zero if it held no tasks when its turn came.
    """

    worker: str
    seconds: float
    task_downtime_seconds: float
    mode: str
    led: bool
    predicted_seconds: float = 0.0

    @classmethod
    def of(cls, step: Step, plan: Plan) -> WorkerOutcome:
        return cls(
            worker=step.worker_id,
            seconds=round(step.seconds, 1),
            task_downtime_seconds=round(step.task_downtime_seconds, 1),
            mode="stopped" if plan.change(step.worker_id).stays_stopped else step.mode,
            led=step.led,
            predicted_seconds=_predicted(step, plan),
        )


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """What a rollout did.

    :param finished_at_ms: the broker's time of the last gate, milliseconds since the epoch; from then on every
        worker was proven to run in the new mode. Zero if there was nothing to do.
    """

    rollout_id: str
    plan_hash: str
    from_modes: str
    to_mode: str
    workers: tuple[WorkerOutcome, ...]
    finished_at_ms: int
    resumed: bool = False

    @classmethod
    def of(cls, plan: Plan, record: RolloutRecord, steps: Mapping[str, Step], *, resumed: bool) -> RolloutReport:
        """The report of a rollout that is done."""
        return cls(
            rollout_id=record.rollout_id,
            plan_hash=plan.hash,
            from_modes=plan.current,
            to_mode=str(plan.target),
            workers=tuple(WorkerOutcome.of(step, plan) for step in steps.values()),
            finished_at_ms=max((step.appended_at_ms for step in steps.values()), default=0),
            resumed=resumed,
        )

    @classmethod
    def of_nothing(cls, plan: Plan) -> RolloutReport:
        """The report where nothing was to be done."""
        return cls("", plan.hash, plan.current, str(plan.target), (), 0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rollout_id": self.rollout_id,
            "plan": self.plan_hash,
            "from": self.from_modes,
            "to": self.to_mode,
            "workers": [asdict(worker) for worker in self.workers],
            "finished_at_ms": self.finished_at_ms,
            "resumed": self.resumed,
        }


def _predicted(step: Step, plan: Plan) -> float:
    predictions = [p for p in plan.task_downtime if p.worker_id == step.worker_id]
    if not predictions or not step.tasks:
        return 0.0
    return predictions[0].best_seconds if step.led else predictions[0].worst_seconds
