"""The records of a group's journal, as values: lease, rollouts, steps, requests, events, and changes that are no roll.

Each is a JSON document under a key of its own in one compacted topic; ``journal.py`` writes them. Another version of
this package may have written there: a field that this one does not know is kept and written back with the record.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_eos_provider.journal.process_start import ProcessStart
from airflow_eos_provider.stored import from_json, to_json, unstored

#: Keys and schema of stored records. Renaming one breaks rollouts that are under way.
LEASE_KEY = "lease"
ROLLOUT_KEY = "rollout/"
STEP_KEY = "step/"
REQUEST_KEY = "request/"
EVENT_KEY = "event/"
CHANGE_KEY = "change/"
SCHEMA = 1

#: Key of a record without content, written only to learn the broker's time. Older versions ignore it.
CLOCK_KEY = "clock"


class StepStatus(StrEnum):
    """How far one worker has come within a rollout."""

    INTENT = "intent"  #: about to change the configuration and restart
    RESTARTED = "restarted"  #: restarted; its gate is not passed yet
    PASSED = "passed"
    FAILED = "failed"
    RESTORED = "restored"  #: failed, and its former configuration is back

    @property
    def announces_an_act(self) -> bool:
        """Whether such a record comes before a worker is touched, and not after."""
        return self in (StepStatus.INTENT, StepStatus.FAILED)

    @property
    def is_half_done(self) -> bool:
        """Whether the worker may be stopped, or not be as the plan wants it."""
        return self in (StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease: one process on one machine, or a deferred task, which has no process."""

    host: str  #: the machine's name, to be read by people; it proves nothing, since names are shared and changed
    pid: int
    token: str  #: differs from every other owner's
    #: As ``<dag>/<run>/<task>``; empty for a process. Nothing proves it dead: only Airflow knows whether it goes on.
    task: str = ""
    start: str = ""  #: its :class:`ProcessStart`, as text; empty for a task

    @classmethod
    def deferred_task(cls, task: str) -> Owner:
        return cls(host="", pid=0, token=uuid.uuid4().hex, task=task)

    @classmethod
    def this_process(cls) -> Owner:
        start = ProcessStart.of_this_process()
        return cls(platform.node(), start.pid, uuid.uuid4().hex, start=str(start))

    @property
    def is_proven_dead(self) -> bool:
        """Whether this very process is gone; of other machines and of deferred tasks nothing can be proven."""
        start = ProcessStart.parse(self.start)
        return start is not None and start.is_proven_dead

    def __str__(self) -> str:
        return f"the deferred task {self.task}" if self.task else f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to roll one group.

    Its times are the broker's: two machines' clocks may differ by more than a lease lives. What is stored are durations
    from the moment at which the broker appended the record.

    :param step: what the owner was doing when it last wrote.
    :param lasts_seconds: from the append to its end; a controller renews it while it works.
    :param acts_seconds: from the append to the moment by which the act that the owner has announced is over; 0 if none
        is under way. A controller that was fenced may still be busy with it.
    :param number: counts the writes of its owner, so that one can be found again in the journal.
    :param appended_at_ms: the broker's time of this record, milliseconds since the epoch; not in the record itself.
    """

    owner: Owner
    rollout_id: str
    actor: str
    step: str
    lasts_seconds: float
    released: bool = False
    acts_seconds: float = 0.0
    number: int = 0
    appended_at_ms: int = unstored(0)

    @property
    def expires_at(self) -> float:
        """When it ends, seconds since the epoch."""
        return self.appended_at_ms / 1000 + self.lasts_seconds

    def is_held(self, now: float) -> bool:
        """Whether its owner may go on, at this time of the broker."""
        return not self.released and now < self.expires_at and not self.owner.is_proven_dead

    def belongs_to(self, task: str) -> bool:
        """Whether it was left by this task when it was deferred, so that the task's next process may take it."""
        return bool(task) and self.owner.task == task

    @property
    def acts_until(self) -> float:
        """When its announced act is over, seconds since the epoch; 0 if none is under way."""
        return self.appended_at_ms / 1000 + self.acts_seconds if self.acts_seconds else 0.0

    def may_be_acting(self, now: float) -> bool:
        """Whether its owner, even if it was fenced, may still be touching a worker, at this time of the broker."""
        return not self.released and now < self.acts_until and not self.owner.is_proven_dead

    def is_same_write(self, other: Lease | None) -> bool:
        """Whether both are one record of one owner."""
        return other is not None and (self.owner.token, self.number) == (other.owner.token, other.number)

    def __str__(self) -> str:
        return f"{self.owner}{f' for {self.actor}' if self.actor else ''}: {self.rollout_id}, {self.step}"


@dataclass(frozen=True, slots=True)
class Step:
    """What has happened to one worker in one rollout.

    :param at: when this was written, seconds since the epoch.
    :param restarted_after: when its restart was announced, seconds since the epoch, by the clock of the machine that
        announced it.
    :param replaces: start token of the process that the restart replaces; empty if none ran. Any other is a new one.
    :param failed_process: start token of the process that did not pass; empty if none ran, or nothing has failed.
    :param seconds: from the intent to the passed gate.
    :param task_downtime_seconds: how long its tasks were unassigned.
    :param tasks: the tasks it held before.
    :param announced_at_ms: the broker's time of the record that announced the restart, milliseconds since the epoch; 0
        where that is not known. It identifies the restart, whichever clock has written the rest.
    :param appended_at_ms: the broker's time of this record, milliseconds since the epoch; not in the record itself.
    :param conditions_after: by condition of its gate, after how many seconds from the announced restart it came true
        and stayed so; of a gate that is waited for, so far.
    :param stopped_after: after how many seconds from the announced restart the process that it replaces was seen to
        have ended; less than none where an earlier controller had announced the same restart. None where none ran, or
        its host does not know.
    :param started_after: likewise, when the process was started that has come instead.
    :param extra: fields that another version has written, to be written back.
    """

    worker_id: str
    status: StepStatus
    at: float
    restarted_after: float = 0.0
    seconds: float = 0.0
    task_downtime_seconds: float = 0.0
    tasks: tuple[str, ...] = ()
    led: bool = False
    mode: str = ""
    evidence: tuple[str, ...] = ()
    announced_at_ms: int = 0
    appended_at_ms: int = unstored(0)
    replaces: str = ""
    failed_process: str = ""
    conditions_after: Mapping[str, float] = field(default_factory=dict)
    stopped_after: float | None = None
    started_after: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def appended(self, at_ms: int) -> Step:
        """The step as it is in the journal, appended at this time of the broker."""
        is_under_way = self.stopped_after is not None or self.started_after is not None
        announces = self.status is StepStatus.INTENT and not is_under_way
        return replace(self, appended_at_ms=at_ms, announced_at_ms=at_ms if announces else self.announced_at_ms)

    @property
    def restart_id(self) -> float:
        """Identifies this restart among those of the worker; the same for every process that reads it."""
        return self.announced_at_ms / 1000 if self.announced_at_ms else self.restarted_after

    @property
    def announced_at(self) -> float | None:
        """When its restart was announced, seconds since the epoch, by the broker's clock; None if none was."""
        return self.restart_id if self.restarted_after else None

    @property
    def stopped_at(self) -> float | None:
        """When the process that the restart replaces was seen to have ended, as :attr:`announced_at`."""
        return None if self.stopped_after is None else self.restart_id + self.stopped_after

    @property
    def started_at(self) -> float | None:
        """When the process that has come instead was started, as :attr:`announced_at`."""
        return None if self.started_after is None else self.restart_id + self.started_after


class RolloutState(StrEnum):
    """The state of a rollout."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PAUSED = "paused"
    ABORTED = "aborted"  #: an operator has decided that it is never taken up again
    SUPERSEDED = "superseded"  #: another plan was applied before this one was finished

    @property
    def is_open(self) -> bool:
        """Whether such a rollout can be taken up again."""
        return self not in (RolloutState.DONE, RolloutState.ABORTED, RolloutState.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One rollout as the journal has it.

    :param plan: the plan document, see :meth:`Plan.to_dict`.
    :param baseline: see :meth:`Baseline.to_dict`.
    :param started_at: seconds since the epoch.
    :param actor: who carried it out last.
    :param note: why it is as it is, if it did not simply go on.
    :param extra: fields that another version has written, to be written back.
    """

    rollout_id: str
    plan: Mapping[str, Any]
    baseline: Mapping[str, Any]
    state: RolloutState
    started_at: float
    actor: str = ""
    reason: str = ""
    note: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change of a group that is no roll: of a connector's source offsets, or a fencing round.

    :param kind: the command that asks for it, such as ``offsets reset``.
    :param about: the connector.
    :param plan: the plan document; its ``hash`` identifies it.
    :param state: ``running``, ``paused`` (to be taken up by the same command), ``done`` or ``aborted``.
    :param started_at: seconds since the epoch.
    :param under_way: the step that was announced last and is not known to be over; empty if there is none.
    :param done: the steps that are over, in their order.
    :param note: why it is as it is, if it did not simply go on.
    :param extra: fields that another version has written, to be written back.
    """

    change_id: str
    kind: str
    about: str
    plan: Mapping[str, Any]
    state: RolloutState
    started_at: float
    under_way: str = ""
    done: tuple[str, ...] = ()
    actor: str = ""
    reason: str = ""
    note: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"in step {self.under_way}" if self.under_way else f"after {self.done[-1]}" if self.done else "begun"
        return f"{self.change_id} ({self.kind} {self.about}, {where})"


class RequestKind(StrEnum):
    """What an operator asks the controller of a running rollout for."""

    PAUSE = "pause"
    ABORT = "abort"

    @property
    def leads_to(self) -> RolloutState:
        return RolloutState.PAUSED if self is RequestKind.PAUSE else RolloutState.ABORTED


@dataclass(frozen=True, slots=True)
class Request:
    """A request, pending until a controller has answered it.

    :param at: seconds since the epoch.
    """

    rollout_id: str
    kind: RequestKind
    at: float
    actor: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.actor or 'an operator'} asked for {self.kind}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a rollout's history; unlike the other records, never replaced by a later one.

    :param at: seconds since the epoch.
    :param what: begun, taken up, or the state that it came to.
    :param actor: who.
    :param owner: the process that wrote it.
    :param reason: why, in the actor's words.
    :param note: what was found: evidence, or from whom the group was taken over.
    """

    rollout_id: str
    at: float
    what: str
    actor: str = ""
    owner: str = ""
    reason: str = ""
    note: str = ""

    @property
    def key(self) -> str:
        return f"{EVENT_KEY}{self.rollout_id}/{self.at:.6f}"


Record = Lease | RolloutRecord | Step | Request | Event | ChangeRecord

#: Key, or its beginning -> the record under it.
KINDS: Mapping[str, type[Record]] = {
    LEASE_KEY: Lease,
    ROLLOUT_KEY: RolloutRecord,
    STEP_KEY: Step,
    REQUEST_KEY: Request,
    EVENT_KEY: Event,
    CHANGE_KEY: ChangeRecord,
}


def kind_of(key: str) -> str | None:
    """The key of :data:`KINDS` that a record's key is, or begins with; None for an unknown kind."""
    return next((kind for kind in KINDS if key == kind or (kind.endswith("/") and key.startswith(kind))), None)


def encode(record: Record) -> bytes:
    """The bytes of one record."""
    return json.dumps({**to_json(record), "schema": SCHEMA}, sort_keys=True).encode()


def read_record(kind: str, document: Mapping[str, Any], appended_at_ms: int) -> Record:
    """A record of a key of :data:`KINDS`, with the broker's time of it, milliseconds since the epoch."""
    found = from_json(KINDS[kind], document)
    if isinstance(found, Lease):
        return replace(found, appended_at_ms=appended_at_ms)
    return found.appended(appended_at_ms) if isinstance(found, Step) else found
