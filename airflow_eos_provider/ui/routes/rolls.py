"""Rolls from the journal: the list, and one roll with its plan, approval and a lane per worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Response

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal_topic import read_journal
from airflow_eos_provider.journal.past import Past, read_past
from airflow_eos_provider.journal.records import (
    Step,
    StepStatus,
)
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.rollout.roll_history import (
    ForeignRollout,
    Rollout,
    find_rollout,
    restart_moments,
    whole_history,
)
from airflow_eos_provider.ui.airflow_state import approvals_of
from airflow_eos_provider.ui.answers import NotThereError, add_rows, answer, errors_of, in_thread, see_cluster
from airflow_eos_provider.ui.documents import Table, filter_by, redacted
from airflow_eos_provider.ui.looks import Looks, Seen

#: A roll that runs changes by the second.
KEPT_SECONDS = 2.0

#: The address of the newest roll.
NEWEST = "newest"

#: What a worker does after each record of its step.
_SPANS = {
    StepStatus.INTENT: "restarting",
    StepStatus.RESTARTED: "gate",
    StepStatus.FAILED: "restoring",
}

#: Records after a restart that was carried out. After other records the worker may never have stopped.
_RESTARTED = (StepStatus.RESTARTED, StepStatus.FAILED)

#: Records of the restart that restores a failed worker's configuration.
_RESTORING = (StepStatus.FAILED, StepStatus.RESTORED)

#: The evidence of these records are met conditions; of others, the failure.
_HOLDING = (StepStatus.RESTARTED, StepStatus.PASSED)

#: The event that a record of a step stands for.
_MOMENTS = {
    StepStatus.INTENT: "announced",
    StepStatus.RESTARTED: "restarted",
    StepStatus.PASSED: "passed",
    StepStatus.FAILED: "failed",
    StepStatus.RESTORED: "restored",
}


def look_at_journal(cluster: ConnectCluster) -> JournalContent:
    """Read the journal as ``eos rollout list`` does."""
    with Session(cluster.kafka) as session:
        return read_journal(session, cluster.group_id)


async def see_journal(looks: Looks, connection_id: str, **limits: float) -> Seen[JournalContent]:
    """The journal of a cluster's group."""
    limits.setdefault("kept_seconds", KEPT_SECONDS)
    return await see_cluster(looks, connection_id, "journal", look_at_journal, **limits)


def newest_roll(content: JournalContent) -> dict[str, Any] | None:
    """The newest roll in short; None if the group was never rolled."""
    rolls = whole_history(content)
    return redacted(in_short(rolls[0])) if rolls else None


def in_short(roll: Rollout | ForeignRollout) -> dict[str, Any]:
    """A roll without its workers and events, as JSON."""
    if isinstance(roll, ForeignRollout):
        return {**roll.to_dict(), "started_at": roll.started_at}
    document = roll.to_dict()
    short = {name: value for name, value in document.items() if name not in ("workers", "events", "request")}
    return {**short, "workers_done": roll.workers_done, "workers_to_roll": roll.workers_to_roll}


def routes(looks: Looks) -> APIRouter:
    """The routes of rolls."""
    router = APIRouter()

    def rolls(content: JournalContent) -> Table:
        return Table.of(map(in_short, whole_history(content)))

    add_rows(router, looks, "rolls", "journal", look_at_journal, rolls, filter_by("state"), kept_seconds=KEPT_SECONDS)

    @router.get("/api/clusters/{connection_id}/rolls/{rollout_id}")
    async def roll(connection_id: str, rollout_id: str, user: GetUserDep) -> Response:
        seen = await see_journal(looks, connection_id)
        found = None if seen.value is None else await in_thread(_found, seen.value, rollout_id)
        if found is None:
            return await answer(seen, lambda content: _require(content, rollout_id), {})
        past, approvals = await asyncio.gather(
            see_cluster(
                looks,
                connection_id,
                f"past of {found.rollout_id}",
                lambda cluster: read_past(cluster.kafka, cluster.group_id, found.rollout_id),
                kept_seconds=KEPT_SECONDS,
            ),
            in_thread(approvals_of, found.plan.hash, user),
        )
        return await answer(seen, lambda _: roll_document(found, past, approvals), {})

    return router


def roll_document(roll: Rollout, past: Seen[Past], approvals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A roll as ``eos rollout show --json`` has it, with its plan, its approvals, and how it went."""
    written = past.value or Past()
    steps: dict[str, list[Step]] = {}
    for step in written.steps or roll.steps.values():
        steps.setdefault(step.worker_id, []).append(step)
    document: dict[str, Any] = redacted(
        {
            **roll.to_dict(),
            "workers_done": roll.workers_done,
            "workers_to_roll": roll.workers_to_roll,
            "live": roll.lease is not None,
            "doing": roll.lease.step if roll.lease else "",
            "lanes": [_lane(worker.worker_id, roll, steps.get(worker.worker_id, ())) for worker in roll.plan.workers],
            "journal": _journal(roll, written),
            "approvals": list(approvals),
            "plan_document": roll.plan.to_dict(),
            "plan_markdown": roll.plan.markdown(),
        }
    )
    document["past_errors"] = errors_of(past.problem)
    return document


def _found(content: JournalContent, rollout_id: str) -> Rollout | None:
    try:
        return find_rollout(content, None if rollout_id == NEWEST else rollout_id)
    except Exception:  # said by the answer
        return None


def _require(content: JournalContent, rollout_id: str) -> Mapping[str, Any]:
    """Say why a roll is not shown."""
    try:
        find_rollout(content, None if rollout_id == NEWEST else rollout_id)
    except ConfigurationError as error:
        raise NotThereError(error.found, expected=error.expected, remedy=error.remedy) from error
    return {}


def _lane(worker_id: str, roll: Rollout, steps: Sequence[Step]) -> dict[str, Any]:
    """What has happened to one worker, in the order of the log."""
    prediction = next((each for each in roll.plan.task_downtime if each.worker_id == worker_id), None)
    last = roll.steps.get(worker_id)
    passed = [step for step in steps if step.status is StepStatus.PASSED]
    is_live = roll.lease is not None
    spans = [*_spans(steps, is_live=is_live), *_down(steps, is_live=is_live)]
    return {
        "worker": worker_id,
        "predicted": prediction
        and {
            "best_seconds": prediction.best_seconds,
            "worst_seconds": prediction.worst_seconds,
            "reason": prediction.reason,
        },
        "measured_downtime_seconds": round(last.task_downtime_seconds, 1) if last and passed else None,
        "restart_seconds": _length(spans, "restarting"),
        "gate_seconds": _length(spans, "gate"),
        "spans": spans,
        "moments": _moments(steps),
        "conditions": [] if last is None else _conditions(last),
    }


def _conditions(step: Step) -> list[dict[str, Any]]:
    """What is known of the gate: the conditions that hold, or why the worker has failed."""
    holds = step.status in _HOLDING
    return [{"at": _true_at(step, text) if holds else None, "text": text, "holds": holds} for text in step.evidence]


def _turns(steps: Iterable[Step]) -> list[Step]:
    """Without what only says how far a restart has come, and which further conditions of its gate hold."""
    return [next(same) for _, same in groupby(steps, lambda step: (step.worker_id, step.status, step.restart_id))]


def _restarts(steps: Iterable[Step]) -> list[list[Step]]:
    """One worker's records by the act that they tell of: a restart that was announced, or the restart that restores."""
    return [list(same) for _, same in groupby(steps, lambda step: (step.restart_id, step.status in _RESTORING))]


def _moments(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """What has happened to a worker, in its order; without a time where that is not known.

    A controller that takes a restart up finds in its host's record what the one before may have noted already.
    """
    found = list[tuple[float, dict[str, Any]]]()
    noted = set[tuple[str, str]]()
    for restart in _restarts(steps):
        last, announced_at = restart[-1], restart[-1].restart_id
        turns = [(_MOMENTS[step.status], _at(step)) for step in _turns(restart)]
        told = [
            (what, at)
            for what, at in restart_moments(last).items()
            if at is None or at > announced_at or (what, last.replaces) not in noted
        ]
        noted.update((what, last.replaces) for what, at in told if at is not None)
        for what, at in (*turns[:1], *told, *turns[1:]):
            found.append((announced_at if at is None else at, {"at": at, "what": what, "note": ""}))
    return [moment for _, moment in sorted(found, key=itemgetter(0))]


def _down(steps: Sequence[Step], *, is_live: bool) -> Iterator[dict[str, Any]]:
    """From when to when no process of the worker ran, as far as that is known."""
    for restart in _restarts(steps):
        last = restart[-1]
        is_open = is_live and last is steps[-1] and last.status.announces_an_act
        if last.stopped_at is not None and (last.started_at is not None or is_open):
            yield {"from": last.stopped_at, "to": last.started_at, "what": "down"}


def _spans(steps: Sequence[Step], *, is_live: bool) -> list[dict[str, Any]]:
    """What a worker went through."""
    turns = _turns(steps)
    was_stopped = {step.restart_id for step in steps if step.stopped_at is not None}
    ends: Iterable[tuple[Step, Step | None]] = [*pairwise(turns), *((step, None) for step in turns[-1:])]
    return [
        {
            "from": _at(step),
            "to": following and _at(following),
            "what": _span(step, following, may_be_stopped=is_live, was_stopped=step.restart_id in was_stopped),
        }
        for step, following in ends
        if step.status in _SPANS
    ]


def _span(step: Step, following: Step | None, *, may_be_stopped: bool, was_stopped: bool) -> str:
    is_restarting = was_stopped or (may_be_stopped if following is None else following.status in _RESTARTED)
    return "announced" if step.status is StepStatus.INTENT and not is_restarting else _SPANS[step.status]


def _length(spans: Sequence[Mapping[str, Any]], what: str) -> float | None:
    """How long the last span of this kind took, seconds; None while it goes on, or where none is known."""
    ended = [round(span["to"] - span["from"], 1) for span in spans if span["what"] == what and span["to"] is not None]
    return ended[-1] if ended else None


def _journal(roll: Rollout, past: Past) -> list[dict[str, Any]]:
    """What was written, the oldest first."""
    events = [
        {"at": one.at, "kind": "event", "worker": "", "what": one.what, "who": one.actor, "why": one.reason}
        | {"note": one.note, "evidence": []}
        for one in roll.events
    ]
    steps = [
        {"at": _at(one), "kind": "step", "worker": one.worker_id, "what": str(one.status), "who": "", "why": ""}
        | {"note": "", "evidence": list(one.evidence)}
        for one in _turns(past.steps or roll.steps.values())
    ]
    leases = [
        {"at": one.appended_at_ms / 1000, "kind": "lease", "worker": "", "what": one.step, "who": one.actor, "why": ""}
        | {"note": str(one.owner), "evidence": []}
        for one in past.leases
    ]
    return sorted([*events, *steps, *leases], key=lambda line: float(str(line["at"])))


def _true_at(step: Step, evidence: str) -> float:
    """When a condition of the gate came true; when the record was written, where the journal does not keep that.

    The restart's moment by the broker's clock, and a duration of the controller's.
    """
    after = step.conditions_after.get(evidence.partition(":")[0])
    return _at(step) if after is None else step.restart_id + after


def _at(step: Step) -> float:
    """When it was written, by the broker's clock where that is known."""
    return step.appended_at_ms / 1000 if step.appended_at_ms else step.at
