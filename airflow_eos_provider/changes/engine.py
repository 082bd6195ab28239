"""Plans any declared change, and carries it out under the group's lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.changes.change import MOST_LINES, Change, Plan, Report, read_request
from airflow_eos_provider.journal.group_change import group_change
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.journal.records import ChangeRecord, RolloutState

if TYPE_CHECKING:
    from airflow_eos_provider.connect.connect_session import ConnectSession


def planned(change: Change[Any], session: ConnectSession, request: Any) -> Plan:
    """The plan to show: the plan of an unfinished change that the request resumes, or a new plan."""
    found = read_journal(session.kafka, session.cluster.group_id).open_change if change.takes_lease else None
    if found is not None and found.kind == change.name and not change.begins_again:
        unfinished = Plan.from_dict(found.plan, change.name)
        if change.takes_up(request, unfinished):
            return replace(unfinished, is_unfinished=True)
    return change.plan(session, request)


def carry_out(
    change: Change[Any],
    session: ConnectSession,
    plan: Plan,
    *,
    actor: str,
    reason: str = "",
    take_over: bool = False,
    as_found: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Report:
    """Carry out a plan, or resume the unfinished change with the same plan. Safe to re-run after a crash.

    :param as_found: if the plan has changed when it is made again under the lease, report the new one and carry it out.
        A new plan that needs its hash is refused.
    :raises PlanMovedError: the plan has changed since it was made. Nothing was done.
    :raises LeaseHeldError: another controller holds the lease.
    :raises RefusedError: a roll or another change of the group is not finished.
    :raises FencedError: another controller has taken over.
    :raises UnreachableError: brokers or workers no longer answer; run the same command again to resume.
    """
    again = partial(_made_again, change, session, as_found=as_found, report=report)
    if not change.takes_lease:
        return change.apply(session, again(plan), None, report)
    if (done := _done(change, session, plan)) and (before := change.done_before(session, plan)):
        report(f"Nothing to do: {done.change_id} has carried this plan out.")
        return before
    journal = Journal(session.kafka, plan.group_id, actor=actor, reason=reason, report=report)
    if change.closes:
        return change.apply(session, again(plan), journal, report)
    if change.begins_again:
        plan = again(plan)  # a plan that has moved leaves no journal behind
    with group_change(
        journal, change.name, plan.about, _journalled(plan), take_over=take_over, begins_again=change.begins_again
    ) as act:
        if act.taken_up and not change.begins_again:
            report(f"Taking up {act.record}.")
            return change.apply(session, plan, act, report)
        now = again(plan)
        if now is not plan:
            act.replan(now.about, _journalled(now))
        return change.apply(session, now, act, report)


def _made_again(
    change: Change[Any], session: ConnectSession, plan: Plan, *, as_found: bool, report: Callable[[str], None]
) -> Plan:
    """The plan as it is now; the same object if it has not changed."""
    now = change.plan(session, read_request(change.request, plan.request))
    if now.hash == plan.hash:
        return plan
    if not as_found or now.needs_hash:
        now.require(plan.hash, change.moved(plan, now))
    report(f"The plan has changed; it is {now.short_hash} now.")
    for line in now.lines or (now.nothing,):
        report(line)
    return now


def _done(change: Change[Any], session: ConnectSession, plan: Plan) -> ChangeRecord | None:
    """The change that carried out this plan. Its process may have been killed before it printed the report."""
    closed = read_journal(session.kafka, plan.group_id).closed_changes(change.name, plan.about)
    done = [one for one in closed if one.state is RolloutState.DONE and one.plan.get("hash") == plan.hash]
    return done[-1] if done else None


def _journalled(plan: Plan) -> dict[str, Any]:
    return replace(plan, lines=plan.lines[:MOST_LINES], is_unfinished=False).to_dict()
