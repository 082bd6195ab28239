"""Finds an unfinished roll or change, and closes it as planned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS, ConnectSession
from airflow_eos_provider.errors import EosError, RefusedError
from airflow_eos_provider.journal.content import JournalContent, not_understood
from airflow_eos_provider.journal.journal import Journal, read_journal, require_free
from airflow_eos_provider.journal.journal_topic import clock_of
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    Lease,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
)
from airflow_eos_provider.journal.stop_requests import ask_to_stop

#: How it ends: its controller is asked to stop; its controller is fenced; nobody carries it out.
ASKED, FENCED, CLOSED = "asked to stop", "fenced", "closed"


def plan_close(session: ConnectSession, kind: str, request: Mapping[str, Any]) -> Plan:
    """As ``Close.plan``. A running roll is asked to stop, unless its controller is to be fenced."""
    kafka, group_id = session.kafka, session.cluster.group_id
    content = read_journal(kafka, group_id)
    found = _chosen(content, group_id, request["which"])
    if found is None:
        why = f"No roll and no change of group {group_id} is open."
        return Plan(kind, group_id, "", "", (), {}, request, nothing=why)
    now = clock_of(kafka.settings, group_id).now
    lease = content.lease
    is_held = lease is not None and lease.is_held(now())
    if not request["take_over"] and is_held and _is_at_work(lease, found):
        ends = ASKED
    else:
        if not request["take_over"]:
            require_free(lease, group_id, now=now)
        ends = FENCED if is_held else CLOSED
    plan = _plan(kind, content, group_id, found, request, ends)
    answers = [f"  {worker} now: {_answer_of(session, worker)}" for worker in _half_done(_steps(content, found))]
    return replace(plan, lines=(*plan.lines, *answers))


def close(session: ConnectSession, plan: Plan, journal: Journal) -> tuple[str, ...]:
    """As ``Close.apply``."""
    if plan.nothing:
        raise RefusedError(f"{plan.nothing} Nothing was closed.")
    name, ends, note = plan.content["id"], plan.content["ends"], journal.reason or "closed"
    if ends == ASKED:
        wanted = Request(name, RequestKind.ABORT, time.time(), journal.actor, note)
        return _stopped(session, plan.group_id, wanted, journal)
    try:
        content = journal.acquire(take_over=ends == FENCED)
        found = _chosen(content, plan.group_id, name)
        if found is None:
            raise RefusedError(f"{name} was closed by another command a moment ago.")
        _plan(plan.kind, content, plan.group_id, found, plan.request, ends).require(plan.hash)
        if isinstance(found, ChangeRecord):
            journal.write_change(replace(found, state=RolloutState.ABORTED, note=note), str(RolloutState.ABORTED))
        else:
            journal.end(replace(found, state=RolloutState.ABORTED, note=note))
    finally:
        journal.close()
    return _half_done(_steps(content, found))


def _stopped(session: ConnectSession, group_id: str, wanted: Request, journal: Journal) -> tuple[str, ...]:
    """Ask the controller of a roll to stop, and wait for its answer."""
    answer = ask_to_stop(session.kafka, group_id, wanted, lambda: journal)
    if answer.state.is_open:
        raise RefusedError(
            f"The rollout {answer.rollout_id} was asked to stop, and its controller has not answered.",
            remedy="It stops before its next action, for the request stays. If it hangs, take over: it is fenced then.",
        )
    if answer.state is not RolloutState.ABORTED:
        raise RefusedError(
            f"The rollout {answer.rollout_id} is {answer.state}: it came to its end before it could stop."
        )
    return answer.half_done


def _is_at_work(lease: Lease | None, found: RolloutRecord | ChangeRecord) -> bool:
    """Whether a lease that runs is of a controller that carries this roll out, and will answer."""
    if lease is None or not isinstance(found, RolloutRecord):
        return False
    return lease.rollout_id == found.rollout_id and not lease.owner.is_proven_dead


def _plan(
    kind: str,
    content: JournalContent,
    group_id: str,
    found: RolloutRecord | ChangeRecord,
    request: Mapping[str, Any],
    ends: str,
) -> Plan:
    """The plan to close it.

    Its hash covers the progress and the last owner, because another controller has another lease. A roll that is asked
    to stop still progresses, so its hash leaves both out.
    """
    steps, last = _steps(content, found), content.lease
    name = found.change_id if isinstance(found, ChangeRecord) else found.rollout_id
    hashed = {"id": name, "ends": ends, "plan": found.plan.get("hash")}
    if ends != ASKED:
        hashed["state"] = str(found.state)
        hashed["steps"] = (
            [found.under_way, list(found.done)]
            if isinstance(found, ChangeRecord)
            else {worker: [str(step.status), step.restart_id] for worker, step in steps.items()}
        )
        hashed["last"] = last.owner.token if last else None
    return Plan(
        kind,
        group_id,
        about=name,
        question=f"Close {name} of Kafka Connect group {group_id} as it is?",
        lines=(*_of_record(found, name, group_id, steps), *_of_lease(last, ends)),
        content=hashed,
        request=request,
    )


def _of_record(record: RolloutRecord | ChangeRecord, name: str, group_id: str, steps: dict[str, Step]) -> Iterator[str]:
    what = f"change {name} ({record.kind} {record.about})" if isinstance(record, ChangeRecord) else f"rollout {name}"
    yield f"close the {what} of group {group_id}: it is {record.state}"
    yield f"  begun by {record.actor or 'unknown'}: {record.reason or 'no reason'}"
    if record.note:
        yield f"  why it stopped: {record.note}"
    if isinstance(record, ChangeRecord):
        yield f"  finished steps: {', '.join(record.done) or 'none'}"
        if record.under_way:
            yield f"  step that was begun and may not be finished: {record.under_way}"
        yield "  the connector is left unchanged, perhaps stopped; nothing is undone"
    else:
        yield from (f"  {step.worker_id}: {step.status}" for _, step in sorted(steps.items()))
        yield from (f"  {worker} is half done; see that it runs" for worker in _half_done(steps))
        yield "  no worker is touched; each stays in the mode that it has"


def _of_lease(last: Lease | None, ends: str) -> Iterator[str]:
    if ends == ASKED:
        yield f"  {last} carries it out, and continues until it is asked to stop"
        yield "  it stops before its next action; a worker that it has stopped is started first"
    elif ends == FENCED:
        yield f"  take over: {last} is fenced, though its lease still runs"
    elif last is not None:
        yield f"  the group was last held by {last}"


def _steps(content: JournalContent, found: RolloutRecord | ChangeRecord) -> dict[str, Step]:
    return {} if isinstance(found, ChangeRecord) else dict(content.steps.get(found.rollout_id, {}))


def _half_done(steps: dict[str, Step]) -> tuple[str, ...]:
    return tuple(sorted(worker for worker, step in steps.items() if step.status.is_half_done))


def _answer_of(session: ConnectSession, worker: str) -> str:
    """Whether a worker answers, in words."""
    try:
        url = session.cluster.worker(worker).url
        with session.rest(url, give_up_at=time.monotonic() + ANSWER_SECONDS) as client:
            return f"it answers, Connect {client.root().version}"
    except EosError as error:
        return f"it does not answer: {error.found}"


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
