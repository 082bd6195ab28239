"""Asking a rollout to stop, for now (pause) or for good (abort), from outside of the process that carries it out.

A request is a record in the journal, written without the journal's transactional id, so that it fences no one. The
controller looks for it between two actions and while it waits, never within an action: there a worker may be stopped
and not yet started. Where no controller carries the rollout out, the next one finds the request before its first act.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal import Journal, ask, read_journal
from airflow_eos_provider.journal.journal_topic import clock_of
from airflow_eos_provider.journal.records import (
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.kafka.kafka_session import Session

#: An answer comes after the action that is under way: a worker's stop and start, and one look.
ANSWER_SECONDS = 150.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request."""

    rollout_id: str
    kind: RequestKind
    state: RolloutState  #: the state of the rollout now
    #: Whether a controller has stopped for it, or the rollout is closed. A pause that no controller has answered stays
    #: in the journal until one takes the rollout up.
    answered: bool
    half_done: tuple[str, ...] = ()  #: workers whose change was announced and is not done; they may be stopped


def ask_to_stop(
    kafka: Session,
    group_id: str,
    wanted: Request,
    journal: Callable[[], Journal],
    wait_seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Ask a rollout to stop, and wait for the answer of the controller that carries it out.

    :param journal: makes a journal of this group; used to close an aborted rollout that no controller carries out.
    """
    content = read_journal(kafka, group_id)
    content.require_understood(content.rollouts[wanted.rollout_id])
    _require_open(content.rollouts[wanted.rollout_id])
    now = clock_of(kafka.settings, group_id).now
    if not _is_carried_out(content, wanted.rollout_id, now) and wanted.kind is RequestKind.ABORT:
        return _close(wanted, journal())
    ask(kafka.settings, group_id, wanted)
    content = read_journal(kafka, group_id)
    deadline = time.monotonic() + wait_seconds
    while _is_carried_out(content, wanted.rollout_id, now) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        content = read_journal(kafka, group_id)
    # A controller that is seen to be gone may have written its answer after what was read: nothing follows now.
    content = read_journal(kafka, group_id)
    if _is_carried_out(content, wanted.rollout_id, now) or wanted.kind is RequestKind.PAUSE:
        return _answer(content, wanted)
    if content.rollouts[wanted.rollout_id].state.is_open:  # its controller ended without an answer
        return _close(wanted, journal())
    return _answer(content, wanted)


def _is_carried_out(content: JournalContent, rollout_id: str, now: Callable[[], float]) -> bool:
    lease = content.lease
    return lease is not None and lease.rollout_id == rollout_id and lease.is_held(now())


def _require_open(record: RolloutRecord) -> None:
    if not record.state.is_open:
        raise RefusedError(
            f"Rollout {record.rollout_id} is {record.state}; there is nothing to stop.",
            remedy="See 'eos rollout list'.",
        )


def _close(wanted: Request, journal: Journal) -> Answer:
    """Close a rollout that no controller carries out; one that tries now is fenced."""
    try:
        content = journal.acquire()
        record = content.rollouts[wanted.rollout_id]
        _require_open(record)
        aborted = replace(record, state=RolloutState.ABORTED, note=str(wanted))
        journal.end(aborted)
        return _answer(replace(content, rollouts={**content.rollouts, wanted.rollout_id: aborted}, requests={}), wanted)
    finally:
        journal.close()


def _answer(content: JournalContent, wanted: Request) -> Answer:
    steps = content.steps.get(wanted.rollout_id, {}).values()
    return Answer(
        rollout_id=wanted.rollout_id,
        kind=wanted.kind,
        state=content.rollouts[wanted.rollout_id].state,
        answered=wanted.rollout_id not in content.requests,
        half_done=tuple(sorted(step.worker_id for step in steps if step.status.is_half_done)),
    )
