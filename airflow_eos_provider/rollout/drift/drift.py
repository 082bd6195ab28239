"""Drift: changes to a Connect cluster since its last rollout that no rollout made.

Everything here takes values and returns values; ``watch.py`` gathers them. While a rollout is carried out its workers
are between two states, so only changes that no rollout makes are found then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Audit, Finding, Verdict
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.rollout.hosts.host import CLOCK_TICK_SECONDS
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.roster import stranger
from airflow_eos_provider.rollout.roll_history import Rollout

_SHORT = 12


class DriftKind(StrEnum):
    """Ways in which a cluster drifts."""

    MODE = "mode"
    UNKNOWN_MEMBER = "unknown member"
    MISSING_WORKER = "missing worker"
    EDITED_FILE = "edited file"
    INTERNAL_TOPICS = "internal topics"
    UNFINISHED_ROLLOUT = "unfinished rollout"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a cluster is held against.

    :param source: where that comes from, in words.
    :param modes: modes in which a worker may run; empty if any will do, as long as all have the same.
    :param digests: by worker, the SHA-256 that its file may have; a worker that is missing here may have any file.
    :param accepted: SHA-256 of further files that are as meant, of whichever worker.
    :param may_be_stopped: workers that need not run.
    :param under_way: the rollout that is carried out at this moment.
    :param unfinished: the rollout that is half done, with no controller to carry it out.
    """

    source: str = "one mode for all workers"
    modes: frozenset[Mode] = frozenset()
    digests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    may_be_stopped: frozenset[str] = frozenset()
    under_way: str | None = None
    unfinished: Rollout | None = None

    @classmethod
    def after(cls, rollout: Rollout | None) -> Expected:
        """What the newest rollout of a group makes one expect of it."""
        if rollout is None:
            return cls()
        plan = rollout.plan
        state = rollout.record.state
        stopped = frozenset(w.worker_id for w in plan.workers if w.stays_stopped)
        if state is RolloutState.DONE:
            return cls(
                source=f"rollout {rollout.rollout_id}",
                modes=frozenset({plan.target}),
                digests={w.worker_id: frozenset({w.config_after}) for w in plan.workers},
                may_be_stopped=stopped,
            )
        under_way = rollout.lease is not None
        return cls(
            source=f"rollout {rollout.rollout_id}, {rollout.state}",
            modes=frozenset({plan.target, *(mode for w in plan.workers if (mode := w.mode_before))}),
            digests={w.worker_id: frozenset({w.config_before, w.config_after}) for w in plan.workers},
            may_be_stopped=stopped,
            under_way=rollout.rollout_id if under_way else None,
            unfinished=None if under_way or state is RolloutState.ABORTED else rollout,
        )

    def stated(self, mode: Mode | None = None, accept: Collection[str] = ()) -> Expected:
        """The same with what an operator states: the mode, and files that are as meant though no rollout made them.

        The mode of a rollout that is carried out meanwhile is still right.
        """
        stated = replace(self, accepted=self.accepted | {digest.lower() for digest in accept})
        if mode is None or self.under_way:
            return stated
        return replace(stated, modes=frozenset({mode}), source=f"stated; {self.source}")


@dataclass(frozen=True, slots=True)
class Drift(Audit):
    """What one look at a cluster has found.

    :param expected: what it was held against.
    """

    expected: Expected = field(default_factory=Expected)

    def headline(self) -> str:
        if self.findings:
            found = counted(len(self.findings), "finding")
            return f"Connect group {self.group_id} has drifted: {found}. Expected by: {self.expected.source}."
        if self.doubts:
            return f"Whether Connect group {self.group_id} has drifted cannot be determined now."
        if self.expected.under_way:
            return f"Rollout {self.expected.under_way} of Connect group {self.group_id} is running; no other drift."
        return f"No drift: Connect group {self.group_id} is as expected ({self.expected.source})."

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            **Audit.to_dict(self),
            "expected": {
                "source": self.expected.source,
                "modes": sorted(self.expected.modes),
                "rollout_under_way": self.expected.under_way,
            },
        }


def newest_rollout(rollouts: Collection[Rollout]) -> Rollout | None:
    """The rollout that the cluster should be as left by; one that another has replaced says nothing."""
    standing = [rollout for rollout in rollouts if rollout.record.state is not RolloutState.SUPERSEDED]
    return max(standing, key=lambda rollout: rollout.record.started_at, default=None)


def find_drift(
    observation: Observation, expected: Expected, unknown: Mapping[str, bool | None] = MappingProxyType({})
) -> Drift:
    """Hold one look at a cluster against what is expected of it.

    :param unknown: by unknown member, whether it says that it is enabled; None if it does not tell.
    """
    found = (
        *_unknown_members(observation, expected, unknown),
        *_modes(observation, expected),
        *_missing(observation, expected),
        *_edited(observation, expected),
        *_internal_topics(observation),
        *_unfinished(expected),
    )
    doubts = () if expected.under_way else tuple(_doubts(observation, expected))
    return Drift(observation.at, observation.group_id, found, doubts, expected)


def _fails(kind: DriftKind, subject: str, found: str, remedy: str, detail: str = "") -> Finding:
    return Finding(subject, Verdict.FAIL, found, remedy=remedy, kind=kind, detail=detail)


def _unknown_members(
    observation: Observation, expected: Expected, unknown: Mapping[str, bool | None]
) -> Iterator[Finding]:
    for worker_id in observation.unknown_members:
        if worker_id in observation.aliases:
            yield replace(stranger(observation, worker_id), kind=DriftKind.UNKNOWN_MEMBER)
            continue
        is_enabled = unknown.get(worker_id)
        what = f"{worker_id} is a member of the group, but not in the cluster file"
        if is_enabled is not None:
            what += f"; it runs {'enabled' if is_enabled else 'disabled or preparing, not enabled'}"
        harm = ""
        if is_enabled is False and Mode.ENABLED in expected.modes:
            harm = "there is no exactly-once while it is in the group. "
        yield _fails(
            DriftKind.UNKNOWN_MEMBER,
            worker_id,
            what,
            f"{harm}Stop it; or, if it belongs here, set {MODE_PROPERTY}={_wanted(expected)} in its configuration, "
            "restart it and add it to the cluster file ('eos discover' proposes the entry)",
        )


def _modes(observation: Observation, expected: Expected) -> Iterator[Finding]:
    running = [worker for worker in observation.workers if worker.is_running]
    if not expected.modes:
        modes = {w.worker_id: w.mode.verdict.mode for w in running if w.mode.verdict.mode}
        if len(set(modes.values())) > 1:
            by_worker = ", ".join(f"{worker_id} {mode}" for worker_id, mode in sorted(modes.items()))
            remedy = "'eos plan' shows the step that brings them together"
            yield _fails(DriftKind.MODE, "", f"the workers run in different modes: {by_worker}", remedy, by_worker)
        return
    for worker in running:
        mode = worker.mode.verdict.mode
        seen = str(mode)
        if mode is None:
            exactly_once = worker.mode.observed.runs_exactly_once
            if exactly_once is None or any(m.runs_exactly_once_tasks is exactly_once for m in expected.modes):
                continue  # a doubt: it may be as expected
            seen = "enabled" if exactly_once else "disabled or preparing"
        elif mode in expected.modes:
            continue
        yield _fails(
            DriftKind.MODE,
            worker.worker_id,
            f"{worker.worker_id} runs {seen}, expected is {_wanted(expected)}: {worker.mode.reason}",
            f"if this is a mistake, stop it, set {MODE_PROPERTY}={_wanted(expected)} in the {worker.facts.edit}, start "
            f"it again; 'eos plan --to {_wanted(expected)}' shows whether a roll can do that",
            seen,
        )


def _missing(observation: Observation, expected: Expected) -> Iterator[Finding]:
    if expected.under_way:
        return
    for worker in observation.workers:
        if worker.worker_id in expected.may_be_stopped or _is_starting(worker, observation):
            continue
        if worker.worker_id in observation.aliases.values():
            continue  # it is there, under another name
        is_member = worker.worker_id in observation.members
        is_stable = observation.group is not None and observation.group.is_stable
        if worker.is_known_dead:
            what = f"{worker.worker_id} does not run: {worker.facts.running.detail}"
            remedy = f"{worker.facts.read_its_log}, and start it again"
        elif is_stable and not is_member:
            runs_as = f" ({worker.facts.runs_as})" if worker.is_running else ""
            what = f"{worker.worker_id}{runs_as} is not a member of the group"
            remedy = f"{worker.facts.read_its_log}; check group.id and bootstrap.servers in the {worker.facts.edit}"
        else:
            continue
        remedy = f"{remedy}; if it is gone for good, take it out of the cluster file"
        yield _fails(DriftKind.MISSING_WORKER, worker.worker_id, what, remedy)


def _edited(observation: Observation, expected: Expected) -> Iterator[Finding]:
    found: dict[tuple[str, str, tuple[str, ...]], list[WorkerObservation]] = {}
    for worker in observation.workers:
        seen = _seen_of_edit(worker, observation, expected)
        if seen and worker.facts.digest:
            found.setdefault((worker.facts.edit.name, worker.facts.digest, seen), []).append(worker)
    for (_, digest, seen), workers in found.items():
        names = ", ".join(worker.worker_id for worker in workers)
        remedy = (
            "find out who changed it. If it is a mistake, restore the former content before the worker restarts. If it "
            f"is intended, restart the worker when the group is stable, and accept the content: 'accept' {digest}"
        )
        if _is_as_left(workers[0], expected) or digest in expected.accepted:
            remedy = "the worker may still run with the former content: restart it when the group is stable"
        what = f"the {workers[0].facts.edit} of {names} {', and '.join(seen)}"
        yield _fails(DriftKind.EDITED_FILE, names, what, remedy, digest[:_SHORT])


def _seen_of_edit(worker: WorkerObservation, observation: Observation, expected: Expected) -> tuple[str, ...]:
    """In words, what is wrong with a worker's edit; nothing where it cannot be read: that is a doubt."""
    facts = worker.facts
    if facts.digest is None:
        return ()
    is_as_left = _is_as_left(worker, expected)
    seen = []
    if worker.worker_id in expected.digests and not is_as_left and facts.digest not in expected.accepted:
        seen.append(f"is not as {expected.source} has it (SHA-256 {facts.digest[:_SHORT]}…)")
    # A roll may have written it again for another worker that it serves: of its own changes only the mode matters.
    is_shared = sum(other.facts.edit == facts.edit for other in observation.workers) > 1
    is_rewritten = is_as_left and is_shared and worker.mode.verdict.mode is facts.declared.mode
    if not expected.under_way and not is_rewritten and _is_newer_than_process(worker, by_content=is_as_left):
        seen.append("was changed after the worker's start")
    would = facts.declared.mode
    if seen and would is not None and expected.modes and would not in expected.modes:
        seen.append(f"makes the worker join as {would} at its next start")
    return tuple(seen)


def _is_as_left(worker: WorkerObservation, expected: Expected) -> bool:
    return worker.facts.digest in expected.digests.get(worker.worker_id, frozenset())


def _internal_topics(observation: Observation) -> Iterator[Finding]:
    for topic in observation.topics:
        if topic.differing:
            differing = str(topic.differing)
            yield _fails(DriftKind.INTERNAL_TOPICS, topic.setting, topic.problem, topic.remedy, differing)


def _unfinished(expected: Expected) -> Iterator[Finding]:
    if expected.unfinished is not None:
        rollout = expected.unfinished
        note = f" ({rollout.record.note})" if rollout.record.note else ""
        yield _fails(
            DriftKind.UNFINISHED_ROLLOUT,
            rollout.rollout_id,
            f"rollout {rollout.rollout_id} to {rollout.plan.target} is {rollout.state}{note}: "
            f"{rollout.workers_done} of {rollout.workers_to_roll} workers are done, "
            "and no controller carries it out",
            "'eos rollout show' says why; then 'eos rollout resume', or 'eos rollout undo'",
            rollout.state,
        )


def _doubts(observation: Observation, expected: Expected) -> Iterator[str]:
    if observation.group is None:
        yield observation.group_problem or "the group is not readable"
    elif not observation.group.is_stable:
        yield f"the members of the group, which is in state {observation.group.state}"
    for topic in observation.topics:
        if topic.unknown and not topic.differing:
            yield f"the internal topics: {topic.problem}; {topic.remedy}"
    for worker in observation.workers:
        if worker.facts.edit.name and worker.facts.digest is None:
            yield f"the configuration of {worker.worker_id}: {worker.facts.problem or 'not readable'}"
        if worker.is_running and worker.mode.verdict.mode is None:
            yield f"the mode of {worker.worker_id}: {worker.mode.reason}"
        elif _is_starting(worker, observation):
            yield f"{worker.worker_id} in its group: it started a moment ago"


def _is_starting(worker: WorkerObservation, observation: Observation) -> bool:
    """Whether it is not a member because it has just been started."""
    return worker.is_young(observation.at) and worker.worker_id not in observation.members


def _is_newer_than_process(worker: WorkerObservation, *, by_content: bool) -> bool:
    """Whether the file was changed after the worker's process started."""
    started_at = worker.started_at
    declared = worker.facts.declared
    changed_at = declared.modified_at if by_content else (declared.changed_at or declared.modified_at)
    return started_at is not None and changed_at is not None and changed_at > started_at + CLOCK_TICK_SECONDS


def _wanted(expected: Expected) -> str:
    return " or ".join(sorted(expected.modes)) or "the mode of the others"
