"""The history of a group's rollouts, as the journal has it: who, when, why, which evidence.

What this version does not understand of it, for another one has written it, is shown as such (:class:`ForeignRollout`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.journal.content import JournalContent, Unreadable, not_understood
from airflow_eos_provider.journal.records import (
    LEASE_KEY,
    Event,
    Lease,
    Request,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.rollout.outcome import WorkerOutcome
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan

#: The state of a rollout that should be running and that no controller carries out. Scripts rely on the word.
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout with all that is known of it.

    :param plan: what was approved.
    :param steps: how far each worker has come, by worker.
    :param events: what has happened, oldest first.
    :param request: what was asked of it and is not answered.
    :param lease: who carries it out now; None if no controller does.
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
    def started_at(self) -> float:
        return self.record.started_at

    def require_applicable(self) -> None:
        """Go on only if this version can carry the rollout on."""
        if not self.record.state.is_open:
            raise RefusedError(
                f"Rollout {self.rollout_id} is {self.state}, so it cannot be resumed.",
                remedy="Make a new plan: 'eos plan'.",
            )

    @property
    def state(self) -> str:
        """Its state in words; one that should be running and that no controller carries out was interrupted."""
        if self.record.state is RolloutState.RUNNING and self.lease is None:
            return INTERRUPTED
        return str(self.record.state)

    @property
    def workers_to_roll(self) -> int:
        return sum(change.kind is not ChangeKind.NONE for change in self.plan.workers)

    @property
    def workers_done(self) -> int:
        done = [w for w, step in self.steps.items() if step.status == "passed"]
        return sum(change.kind is not ChangeKind.NONE and change.worker_id in done for change in self.plan.workers)

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
        document = {
            "worker": worker_id,
            "change": change.kind.words,
            "from": change.mode,
            "config": change.config,
            "sha256_before": change.config_before,
            "sha256_after": change.config_after,
        }
        if step is None:
            return {**document, "status": None}
        outcome = WorkerOutcome.of(step, self.plan)
        return {
            **document,
            **asdict(outcome),
            "status": str(step.status),
            "at": step.at,
            "tasks": step.tasks,
            "evidence": step.evidence,
            "announced_at": step.announced_at,
            "stopped_at": step.stopped_at,
            "started_at": step.started_at,
            "conditions_after": dict(step.conditions_after),
        }


@dataclass(frozen=True, slots=True)
class ForeignRollout:
    """A rollout that another version has written, and this one does not understand.

    :param found: what is not understood.
    :param started_at: when it was begun, or where that is not known, last written; seconds since the epoch.
    """

    rollout_id: str
    found: Unreadable
    started_at: float

    def to_dict(self) -> dict[str, Any]:
        return {"rollout_id": self.rollout_id, "state": "not understood", "note": f"it {self.found.why}"}


def restart_moments(step: Step) -> dict[str, float | None]:
    """When the process that a restart replaces had ended and the new one was started, seconds since the epoch.

    None where that is not known; nothing of what is to come, or of a worker that did not run.
    """
    is_over = step.status in (StepStatus.RESTARTED, StepStatus.PASSED) and step.announced_at is not None
    moments = {"stopped": step.stopped_at, "started": step.started_at}
    due = {"stopped": is_over and bool(step.replaces), "started": is_over}
    return {what: at for what, at in moments.items() if at is not None or due[what]}


def whole_history(content: JournalContent) -> tuple[Rollout | ForeignRollout, ...]:
    """All rollouts of the journal, the newest first."""
    known = [_rollout(record, content) for record in content.rollouts.values()]
    unknown = {k: found for k, found in content.unreadable.items() if k not in (*content.rollouts, LEASE_KEY)}
    strange = [ForeignRollout(each, found, found.appended_at_ms / 1000) for each, found in unknown.items()]
    return tuple(sorted([*known, *strange], key=lambda one: one.started_at, reverse=True))


def find_rollout(content: JournalContent, prefix: str | None) -> Rollout:
    """The rollout that is meant."""
    found = [one for one in whole_history(content) if prefix is None or one.rollout_id.startswith(prefix)]
    if not found:
        raise ConfigurationError(
            f"The journal has no rollout{f' {prefix}' if prefix else ''}.", remedy="See 'eos rollout list'."
        )
    if prefix is not None and len(found) > 1 and all(rollout.rollout_id != prefix for rollout in found):
        raise ConfigurationError(
            f"{len(found)} rollouts begin with {prefix}: {', '.join(r.rollout_id for r in found)}.",
            expected="an id that only one has",
        )
    meant = next((one for one in found if one.rollout_id == prefix), found[0])
    if isinstance(meant, ForeignRollout):
        raise not_understood(meant.rollout_id, meant.found)
    return meant


def unfinished_rollout(content: JournalContent, target: Mode | None = None) -> Rollout | None:
    """The newest rollout that can be resumed."""
    own = [r for r in content.rollouts.values() if r.state.is_open and target in (None, r.plan.get("target"))]
    newest = max(own, key=lambda record: record.started_at, default=None)
    if newest is None:
        return None
    found = find_rollout(content, newest.rollout_id)
    found.require_applicable()
    return found


def former_mode(plan: Plan) -> Mode:
    """The one mode that a plan's running workers came from."""
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


def _rollout(record: RolloutRecord, content: JournalContent) -> Rollout | ForeignRollout:
    if record.rollout_id in content.unreadable:
        return ForeignRollout(record.rollout_id, content.unreadable[record.rollout_id], record.started_at)
    try:
        plan = Plan.from_dict(record.plan)
    except ConfigurationError as error:
        what = f"has a plan that this version does not understand ({error.found.removesuffix('.')})"
        return ForeignRollout(record.rollout_id, Unreadable(what), record.started_at)
    lease = content.lease
    # Only shown, so this machine's clock will do; it is not before the broker's last record.
    now = max(time.time(), content.appended_at_ms / 1000)
    carried_out = lease is not None and lease.rollout_id == record.rollout_id and lease.is_held(now)
    return Rollout(
        record=record,
        plan=plan,
        steps=content.steps.get(record.rollout_id, {}),
        events=content.events.get(record.rollout_id, ()),
        request=content.requests.get(record.rollout_id),
        lease=lease if carried_out else None,
    )
