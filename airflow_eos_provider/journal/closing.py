"""Closes an unfinished roll or change in its current state: planned, approved by its hash, carried out.

A closed roll or change cannot be resumed. Workers and connectors are left unchanged. A roll that a controller carries
out is asked to stop first, which it does between two actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.content import JournalContent, not_understood
from airflow_eos_provider.journal.journal import Journal, read_journal, require_free
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    Lease,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
)
from airflow_eos_provider.journal.stop_requests import request_within
from airflow_eos_provider.journal.topic import clock_of
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.plan_hash import ShownPlan, hash_of


@dataclass(frozen=True, slots=True)
class ClosePlan(ShownPlan):
    """A roll or a change that is closed.

    :param record: as it is in the journal.
    :param steps: of a roll, by worker.
    :param last: the newest lease in the journal, held or not: whoever takes the group up, be it for a moment, has
        another one.
    :param is_fenced: whether its controller still carries it out, and is fenced.
    :param is_asked: whether its controller still carries the roll out, and is asked to stop.
    """

    moved: ClassVar[str] = "the unfinished work has progressed, was closed, or is carried out by another controller"

    group_id: str
    record: RolloutRecord | ChangeRecord
    steps: Mapping[str, Step] = field(default_factory=dict)
    last: Lease | None = None
    is_fenced: bool = False
    is_asked: bool = False

    @property
    def name(self) -> str:
        """Its id."""
        return self.record.change_id if isinstance(self.record, ChangeRecord) else self.record.rollout_id

    @property
    def hash(self) -> str:
        """SHA-256 over what is closed, how far it has come, who had it last, and whether that one is fenced.

        A roll that is asked to stop goes on until it is: how far it has come and who carries it out does not count.
        """
        record = self.record
        if self.is_asked:
            return hash_of([self.group_id, self.name, "asked to stop", record.plan.get("hash")])
        came_to: Any = [record.under_way, record.done] if isinstance(record, ChangeRecord) else None
        steps = {worker: [str(step.status), step.restart_id] for worker, step in self.steps.items()}
        by = self.last.owner.token if self.last else None
        plan_hash = record.plan.get("hash")
        return hash_of([self.group_id, self.name, str(record.state), plan_hash, came_to, steps, by, self.is_fenced])

    @property
    def half_done(self) -> tuple[str, ...]:
        """Workers whose restart was announced, and that have not passed their gate."""
        return tuple(sorted(worker for worker, step in self.steps.items() if step.status.is_half_done))

    def lines(self) -> list[str]:
        """The plan for a person."""
        record = self.record
        what = (
            f"change {self.name} ({record.kind} {record.about})"
            if isinstance(record, ChangeRecord)
            else f"rollout {self.name}"
        )
        found = [f"close the {what} of group {self.group_id}: it is {record.state}"]
        found.append(f"  begun by {record.actor or 'unknown'}: {record.reason or 'no reason'}")
        if record.note:
            found.append(f"  why it stopped: {record.note}")
        if isinstance(record, ChangeRecord):
            found.append(f"  finished steps: {', '.join(record.done) or 'none'}")
            if record.under_way:
                found.append(f"  step that was begun and may not be finished: {record.under_way}")
            found.append("  the connector is left unchanged, perhaps stopped; nothing is undone")
        else:
            found += [f"  {step.worker_id}: {step.status}" for _, step in sorted(self.steps.items())]
            found += [f"  {worker} is half done; see that it runs" for worker in self.half_done]
            found.append("  no worker is touched; each stays in the mode that it has")
        if self.is_asked:
            found.append(f"  {self.last} carries it out, and continues until it is asked to stop")
            found.append("  it stops before its next action; a worker that it has stopped is started first")
        elif self.last is not None:
            found.append(
                f"  take over: {self.last} is fenced, though its lease still runs"
                if self.is_fenced
                else f"  the group was last held by {self.last}"
            )
        return found


def plan_close(kafka: Session, group_id: str, name: str = "", *, take_over: bool = False) -> ClosePlan | None:
    """What would be closed. Changes nothing.

    A roll that a controller carries out would be asked to stop, unless the controller is to be fenced.

    :param name: of the roll or the change, or the beginning of it; empty: the only one that is open.
    :param take_over: also one that a controller still carries out, which is fenced then.
    :returns: None if nothing of the group is open.
    :raises RefusedError: several are open, none is named so, or another version has written it.
    :raises LeaseHeldError: a controller has the group, for a change or for another roll.
    """
    content = read_journal(kafka, group_id)
    found = _chosen(content, group_id, name)
    if found is None:
        return None
    now = clock_of(kafka.settings, group_id).now
    lease = content.lease
    is_held = lease is not None and lease.is_held(now())
    if not take_over and is_held and _is_at_work(lease, found):
        return _plan(content, group_id, found, is_asked=True)
    if not take_over:
        require_free(lease, group_id, now=now)
    return _plan(content, group_id, found, is_fenced=is_held)


def close(
    kafka: Session,
    group_id: str,
    plan_hash: str,
    name: str = "",
    *,
    journal: Callable[[], Journal],
    note: str,
    actor: str = "",
    take_over: bool = False,
) -> ClosePlan:
    """Close what was shown, if it is still as it was shown. Parameters and errors as in :func:`plan_close`.

    A roll that is carried out is asked to stop, and its answer is waited for.

    :param plan_hash: of the plan that was shown.
    :param journal: makes a journal of this group.
    :param note: why.
    :param actor: who asks a roll to stop.
    :returns: what was closed, as it was left.
    :raises PlanMovedError: it has gone on, or is closed; nothing was closed.
    :raises RefusedError: a roll was asked to stop, and has not done so.
    """
    plan = plan_close(kafka, group_id, name, take_over=take_over)
    if plan is None:
        raise RefusedError(f"Nothing of group {group_id} is open any more. Nothing was closed.")
    plan.require(plan_hash)
    if plan.is_asked:
        return _stopped(kafka, plan, Request(plan.name, RequestKind.ABORT, time.time(), actor, note), journal)
    own = journal()
    try:
        content = own.acquire(take_over=plan.is_fenced)
        found = _chosen(content, group_id, plan.name)
        if found is None:
            raise RefusedError(f"{plan.name} was closed by another command a moment ago.")
        _plan(content, group_id, found, is_fenced=plan.is_fenced).require(plan_hash)
        if isinstance(found, ChangeRecord):
            own.write_change(replace(found, state=RolloutState.ABORTED, note=note), str(RolloutState.ABORTED))
        else:
            own.end(replace(found, state=RolloutState.ABORTED, note=note))
    finally:
        own.close()
    return plan


def _is_at_work(lease: Lease | None, found: RolloutRecord | ChangeRecord) -> bool:
    """Whether a lease that runs is of a controller that carries this roll out, and will answer."""
    if lease is None or not isinstance(found, RolloutRecord):
        return False
    return lease.rollout_id == found.rollout_id and not lease.owner.is_proven_dead


def _stopped(kafka: Session, plan: ClosePlan, wanted: Request, journal: Callable[[], Journal]) -> ClosePlan:
    """Ask the controller of a roll to stop.

    :returns: the plan, with the roll as it was left.
    :raises RefusedError: it has come to its end before, or does not answer.
    """
    answer = request_within(kafka, plan.group_id, wanted, journal)
    if answer.state.is_open:
        raise RefusedError(
            f"The rollout {plan.name} was asked to stop, and its controller has not answered.",
            remedy="It stops before its next action, for the request stays. If it hangs, take over: it is fenced then.",
        )
    if answer.state is not RolloutState.ABORTED:
        raise RefusedError(f"The rollout {plan.name} is {answer.state}: it came to its end before it could stop.")
    content = read_journal(kafka, plan.group_id)
    return _plan(content, plan.group_id, content.rollouts[plan.name])


def _plan(
    content: JournalContent,
    group_id: str,
    found: RolloutRecord | ChangeRecord,
    *,
    is_fenced: bool = False,
    is_asked: bool = False,
) -> ClosePlan:
    steps = {} if isinstance(found, ChangeRecord) else content.steps.get(found.rollout_id, {})
    return ClosePlan(group_id, found, dict(steps), content.lease, is_fenced, is_asked)


def _chosen(content: JournalContent, group_id: str, name: str) -> RolloutRecord | ChangeRecord | None:
    """What is open and meant; None if nothing is open."""
    records: dict[str, RolloutRecord | ChangeRecord] = {**content.rollouts, **content.changes}
    is_open = {key: record for key, record in records.items() if record.state.is_open}
    if not is_open:
        return None
    meant = {key: record for key, record in is_open.items() if key.startswith(name)}
    if len(meant) != 1:
        what = "is not clear which is meant" if meant else "has no such name"
        raise RefusedError(
            f"What is open of group {group_id} {what}: {', '.join(sorted(meant or is_open))}.",
            remedy="Name one of these.",
        )
    ((key, found),) = meant.items()
    if key in content.unreadable:
        raise not_understood(key, content.unreadable[key])
    return found
