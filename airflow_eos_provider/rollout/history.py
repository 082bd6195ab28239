"""The history of a group's rollouts, as the journal has it: who, when, why, which evidence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.rollout.plan import ChangeKind, Plan
from airflow_eos_provider.rollout.records import (
    Event,
    JournalContent,
    Lease,
    Request,
    RolloutRecord,
    RolloutState,
    Step,
)
from airflow_eos_provider.rollout.report import WorkerOutcome


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout with all that is known of it.

    :param plan: what was approved.
    :param steps: how far each worker has come, by worker.
    :param events: what has happened, oldest first.
    :param request: what was asked of it and is not answered.
    :param lease: who carries it out now; None if nobody does.
    """

    record: RolloutRecord
    plan: Plan
    steps: Mapping[str, Step]
    events: tuple[Event, ...]
    request: Request | None
    lease: Lease | None

    @property
    def rollout_id(self) -> str:
        return self.record.rollout_id

    @property
    def state(self) -> str:
        """Its state in words; one that should be running and is carried out by nobody was interrupted."""
        if self.record.state is RolloutState.RUNNING and self.lease is None:
            return "interrupted"
        return str(self.record.state)

    @property
    def workers_to_roll(self) -> int:
        return sum(change.kind is not ChangeKind.NONE for change in self.plan.workers)

    @property
    def workers_through(self) -> int:
        through = [w for w, step in self.steps.items() if step.status == "passed"]
        return sum(change.kind is not ChangeKind.NONE and change.worker_id in through for change in self.plan.workers)

    @property
    def ended_at(self) -> float | None:
        """When it came to its state, seconds since the epoch; None while it runs."""
        if self.record.state is RolloutState.RUNNING or not self.events:
            return None
        return self.events[-1].at

    def to_dict(self) -> dict[str, Any]:
        return {
            "rollout_id": self.rollout_id,
            "state": self.state,
            "plan": self.plan.hash,
            "from": self.plan.current,
            "to": str(self.plan.target),
            "actor": self.record.actor,
            "reason": self.record.reason,
            "note": self.record.note,
            "started_at": self.record.started_at,
            "ended_at": self.ended_at,
            "workers": [self._worker(change.worker_id) for change in self.plan.workers],
            "request": asdict(self.request) if self.request else None,
            "carried_out_by": str(self.lease) if self.lease else None,
            "events": [asdict(event) for event in self.events],
        }

    def _worker(self, worker_id: str) -> dict[str, Any]:
        change = self.plan.change(worker_id)
        step = self.steps.get(worker_id)
        planned = {"worker": worker_id, "change": str(change.kind), "from": change.mode}
        files = {"config": change.config, "sha256_before": change.config_before, "sha256_after": change.config_after}
        if step is None:
            return {**planned, **files, "status": None}
        outcome = asdict(WorkerOutcome.of(step, self.plan))
        evidence = {"status": str(step.status), "at": step.at, "tasks": step.tasks, "evidence": step.evidence}
        return {**planned, **files, **outcome, **evidence}


def history(content: JournalContent) -> tuple[Rollout, ...]:
    """All rollouts of the journal, the newest first.

    :raises ConfigurationError: one has a plan of another schema.
    """
    newest_first = sorted(content.rollouts.values(), key=lambda record: record.started_at, reverse=True)
    return tuple(_rollout(record, content) for record in newest_first)


def find_rollout(content: JournalContent, prefix: str | None) -> Rollout:
    """The rollout that is meant.

    :param prefix: the beginning of its id; None for the newest.
    :raises ConfigurationError: there is none, or there are several.
    """
    found = [rollout for rollout in history(content) if prefix is None or rollout.rollout_id.startswith(prefix)]
    if not found:
        raise ConfigurationError(
            f"The journal has no rollout{f' {prefix}' if prefix else ''}.", remedy="See 'eos rollout list'."
        )
    if prefix is not None and len(found) > 1 and all(rollout.rollout_id != prefix for rollout in found):
        raise ConfigurationError(
            f"{len(found)} rollouts begin with {prefix}: {', '.join(r.rollout_id for r in found)}.",
            expected="an id that only one has",
        )
    return found[0]


def former_mode(plan: Plan) -> Mode:
    """The one mode that a plan's running workers came from.

    :raises RefusedError: they came from different ones, so there is no one mode to go back to.
    """
    modes = {change.mode for change in plan.workers if change.mode != "stopped"}
    if len(modes) != 1:
        raise RefusedError(
            f"Before plan {plan.short_hash} the workers ran {' and '.join(sorted(modes)) or 'nowhere'}.",
            expected="one mode to go back to",
            remedy="Choose one: 'eos plan --to MODE'.",
        )
    return Mode(modes.pop())


def restores_files(back: Plan, former: Plan) -> dict[str, bool]:
    """By worker, whether the way back makes its file byte for byte what it was before the former plan."""
    before = {change.worker_id: change.config_before for change in former.workers}
    return {change.worker_id: before.get(change.worker_id) == change.config_after for change in back.workers}


def _rollout(record: RolloutRecord, content: JournalContent) -> Rollout:
    lease = content.lease
    carried_out = lease is not None and lease.rollout_id == record.rollout_id and lease.is_held(time.time())
    return Rollout(
        record=record,
        plan=Plan.from_dict(record.plan),
        steps=content.steps.get(record.rollout_id, {}),
        events=content.events.get(record.rollout_id, ()),
        request=content.requests.get(record.rollout_id),
        lease=lease if carried_out else None,
    )
