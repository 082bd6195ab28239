"""What the journal of rollouts holds, as values: the lease, rollouts, steps, requests and events.

Each is a JSON document under a key of its own in one compacted topic; ``journal.py`` reads and writes that topic.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from airflow_eos_provider.kafka.log import LogRecord
from airflow_eos_provider.processes import ProcessIdentity, identify

#: Keys and schema of stored records. Renaming one breaks rollouts that are under way.
LEASE_KEY = "lease"
ROLLOUT_KEY = "rollout/"
STEP_KEY = "step/"
REQUEST_KEY = "request/"
EVENT_KEY = "event/"
SCHEMA = 1


class StepStatus(StrEnum):
    """How far one worker has come within a rollout."""

    INTENT = "intent"  #: about to change the file and restart
    RESTARTED = "restarted"  #: restarted; its gate is not passed yet
    PASSED = "passed"
    FAILED = "failed"
    RESTORED = "restored"  #: failed, and its former file is back

    @property
    def announces_an_act(self) -> bool:
        """Whether such a record comes before a worker is touched, and not after."""
        return self in (StepStatus.INTENT, StepStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease: one process on one machine, or a deferred task, which has no process.

    :param boot: the machine's boot id, so that a pid of before a reboot proves nothing.
    :param namespace: its pid namespace: in another container of the same machine the same pid is another process.
    :param task: the deferred task, as ``<dag>/<run>/<task>``; empty for a process. Nothing proves it dead: whether it
        goes on is known to Airflow alone.
    """

    host: str
    boot: str
    pid: int
    started_at: float
    token: str
    namespace: str = ""
    task: str = ""

    @classmethod
    def deferred_task(cls, task: str) -> Owner:
        return cls(host="", boot="", pid=0, started_at=0.0, token=uuid.uuid4().hex, task=task)

    @classmethod
    def this_process(cls) -> Owner:
        me = identify(os.getpid())
        started_at = me.started_at if me else 0.0
        return cls(platform.node(), _boot_id(), os.getpid(), started_at, uuid.uuid4().hex, _pid_namespace())

    @property
    def is_proven_dead(self) -> bool:
        """Whether this very process is gone; of other machines and of deferred tasks nothing can be proven."""
        if self.task or self.host != platform.node():
            return False
        if self.boot != _boot_id():
            return True
        if self.namespace != _pid_namespace():
            return False
        return not ProcessIdentity(self.pid, self.started_at).is_alive()

    def __str__(self) -> str:
        return f"the deferred task {self.task}" if self.task else f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to roll one group.

    :param expires_at: seconds since the epoch; a controller renews it while it works.
    :param step: what the owner was doing when it last wrote.
    :param acts_until: the act that the owner has announced is over by then, seconds since the epoch; 0 if none is
        under way. A controller that was fenced may still be busy with it.
    """

    owner: Owner
    rollout_id: str
    actor: str
    step: str
    expires_at: float
    released: bool = False
    acts_until: float = 0.0

    def is_held(self, now: float) -> bool:
        return not self.released and now < self.expires_at and not self.owner.is_proven_dead

    def belongs_to(self, task: str) -> bool:
        """Whether it was left by this task when it was deferred, so that the task's next process may take it."""
        return bool(task) and self.owner.task == task

    def may_be_acting(self, now: float) -> bool:
        """Whether its owner, even if it was fenced, may still be touching a worker."""
        return not self.released and now < self.acts_until and not self.owner.is_proven_dead

    def __str__(self) -> str:
        return f"{self.owner}{f' for {self.actor}' if self.actor else ''}: rollout {self.rollout_id}, {self.step}"


@dataclass(frozen=True, slots=True)
class Step:
    """What has happened to one worker in one rollout.

    :param at: when this was written, seconds since the epoch.
    :param restarted_after: its process is ours if it started after this moment.
    :param seconds: from the intent to the passed gate.
    :param tasks_stood_seconds: how long its tasks stood still.
    :param tasks: the tasks it held before.
    :param appended_at_ms: the broker's time of this record, milliseconds since the epoch; not in the record itself.
    """

    worker_id: str
    status: StepStatus
    at: float
    restarted_after: float = 0.0
    seconds: float = 0.0
    tasks_stood_seconds: float = 0.0
    tasks: tuple[str, ...] = ()
    led: bool = False
    mode: str = ""
    evidence: tuple[str, ...] = ()
    appended_at_ms: int = 0


class RolloutState(StrEnum):
    """Where a rollout stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PAUSED = "paused"
    ABORTED = "aborted"  #: somebody has decided that it is never taken up again
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
    """

    rollout_id: str
    plan: Mapping[str, Any]
    baseline: Mapping[str, Any]
    state: RolloutState
    started_at: float
    actor: str = ""
    reason: str = ""
    note: str = ""


class RequestKind(StrEnum):
    """What somebody asks the controller of a running rollout for."""

    PAUSE = "pause"
    ABORT = "abort"

    @property
    def leads_to(self) -> RolloutState:
        return RolloutState.PAUSED if self is RequestKind.PAUSE else RolloutState.ABORTED


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody's wish, until a controller has answered it.

    :param at: seconds since the epoch.
    """

    rollout_id: str
    kind: RequestKind
    at: float
    actor: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.actor or 'somebody'} asked for {self.kind}{f': {self.reason}' if self.reason else ''}"


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


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What stands in the journal now.

    :param steps: by rollout and worker.
    :param requests: by rollout, what was asked for and is not answered.
    :param events: by rollout, oldest first.
    :param end_offset: the offset after the last record that was read.
    """

    lease: Lease | None = None
    rollouts: Mapping[str, RolloutRecord] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Step]] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    end_offset: int = 0

    def unfinished(self, plan_hash: str) -> RolloutRecord | None:
        """The newest rollout of this plan that can be taken up again."""
        own = [r for r in self.rollouts.values() if r.plan.get("hash") == plan_hash and r.state.is_open]
        return max(own, key=lambda r: r.started_at, default=None)

    def last_of(self, plan_hash: str) -> RolloutRecord | None:
        """The newest rollout of this plan, however it stands."""
        own = [r for r in self.rollouts.values() if r.plan.get("hash") == plan_hash]
        return max(own, key=lambda r: r.started_at, default=None)


def content_of(records: Iterable[LogRecord], end_offset: int = 0) -> JournalContent:
    """The journal that these records make, in the order of the log.

    :raises ValueError: a record is not understood; the message names its key.
    """
    lease: Lease | None = None
    rollouts: dict[str, RolloutRecord] = {}
    steps: dict[str, dict[str, Step]] = {}
    requests: dict[str, Request] = {}
    events: dict[str, list[Event]] = {}
    for record in records:
        key = (record.key or b"").decode(errors="replace")
        if record.value is None:
            requests.pop(key.removeprefix(REQUEST_KEY), None)
            continue
        try:
            document = _document(record.value)
            if key == LEASE_KEY:
                lease = Lease(**{**document, "owner": Owner(**document["owner"])})
            elif key.startswith(ROLLOUT_KEY):
                rollout = RolloutRecord(**{**document, "state": RolloutState(document["state"])})
                rollouts[rollout.rollout_id] = rollout
            elif key.startswith(STEP_KEY):
                step = _step(document, record.timestamp_ms)
                steps.setdefault(key.removeprefix(STEP_KEY).partition("/")[0], {})[step.worker_id] = step
            elif key.startswith(REQUEST_KEY):
                request = Request(**{**document, "kind": RequestKind(document["kind"])})
                requests[request.rollout_id] = request
            elif key.startswith(EVENT_KEY):
                event = Event(**document)
                events.setdefault(event.rollout_id, []).append(event)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"with key {key!r}: {error}") from error
    ordered = {rollout_id: tuple(sorted(found, key=lambda e: e.at)) for rollout_id, found in events.items()}
    return JournalContent(lease, rollouts, steps, requests, ordered, end_offset)


def encode(document: Lease | RolloutRecord | Step | Request | Event) -> bytes:
    """The bytes of one record."""
    return json.dumps({"schema": SCHEMA, **asdict(document)}, sort_keys=True).encode()


def _document(value: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(value)
    schema = document.pop("schema", None)
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema}")
    return document


def _step(document: dict[str, Any], appended_at_ms: int) -> Step:
    values = {
        **document,
        "status": StepStatus(document["status"]),
        "tasks": tuple(document["tasks"]),
        "evidence": tuple(document["evidence"]),
        "appended_at_ms": appended_at_ms,
    }
    return Step(**values)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
