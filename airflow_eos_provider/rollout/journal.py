"""The journal of rollouts: one small compacted topic per group, written in transactions, with the lease in it.

Every act of a controller is preceded by a record here. The records are written under the transactional id
``eos-rollout-<group>``, so a controller that has taken over fences the one before it: that one's next record is
refused, and it stops before it touches a worker.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ClusterMetadata, NewTopic  # type: ignore[attr-defined]

from airflow_eos_provider.errors import ConfigurationError, FencedError, LeaseHeldError, UnreachableError
from airflow_eos_provider.kafka.clients import Complaints, QuietAdmin, quiet_producer
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.log import read_to_end
from airflow_eos_provider.processes import ProcessIdentity, identify

#: Keys and schema of stored records. Renaming one breaks rollouts that are under way.
LEASE_KEY = "lease"
ROLLOUT_KEY = "rollout/"
STEP_KEY = "step/"
SCHEMA = 1

#: An open journal transaction holds up every reader of the journal, so it may not live long.
TRANSACTION_TIMEOUT_MS = 15_000
CALL_TIMEOUT_SECONDS = 20.0


def journal_topic(group_id: str) -> str:
    """The journal topic of a group; its transactional id has the same name."""
    return f"eos-rollout-{group_id}"


class StepStatus(StrEnum):
    """How far one worker has come within a rollout."""

    INTENT = "intent"  #: about to change the file and restart
    RESTARTED = "restarted"  #: restarted; its gate is not passed yet
    PASSED = "passed"
    FAILED = "failed"
    RESTORED = "restored"  #: failed, and its former file is back


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease: one process on one machine.

    :param boot: the machine's boot id, so that a pid of before a reboot proves nothing.
    :param namespace: its pid namespace: in another container of the same machine the same pid is another process.
    """

    host: str
    boot: str
    pid: int
    started_at: float
    token: str
    namespace: str = ""

    @classmethod
    def this_process(cls) -> Owner:
        me = identify(os.getpid())
        started_at = me.started_at if me else 0.0
        return cls(platform.node(), _boot_id(), os.getpid(), started_at, uuid.uuid4().hex, _pid_namespace())

    @property
    def is_proven_dead(self) -> bool:
        """Whether this very process is gone; of other machines nothing can be proven."""
        if self.host != platform.node():
            return False
        if self.boot != _boot_id():
            return True
        if self.namespace != _pid_namespace():
            return False
        return not ProcessIdentity(self.pid, self.started_at).is_alive()

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to roll one group.

    :param expires_at: seconds since the epoch; a controller renews it while it works.
    :param step: what the owner was doing when it last wrote.
    """

    owner: Owner
    rollout_id: str
    actor: str
    step: str
    expires_at: float
    released: bool = False

    def is_held(self, now: float) -> bool:
        return not self.released and now < self.expires_at and not self.owner.is_proven_dead


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
    SUPERSEDED = "superseded"  #: another plan was applied before this one was finished

    @property
    def is_open(self) -> bool:
        """Whether such a rollout can be taken up again."""
        return self not in (RolloutState.DONE, RolloutState.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One rollout as the journal has it.

    :param plan: the plan document, see :meth:`Plan.to_dict`.
    :param baseline: see :meth:`Baseline.to_dict`.
    """

    rollout_id: str
    plan: Mapping[str, Any]
    baseline: Mapping[str, Any]
    state: RolloutState
    started_at: float
    actor: str = ""
    reason: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What stands in the journal now."""

    lease: Lease | None = None
    rollouts: Mapping[str, RolloutRecord] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Step]] = field(default_factory=dict)

    def unfinished(self, plan_hash: str) -> RolloutRecord | None:
        """The newest rollout of this plan that is neither done nor superseded."""
        own = [r for r in self.rollouts.values() if r.plan.get("hash") == plan_hash and r.state.is_open]
        return max(own, key=lambda r: r.started_at, default=None)


def read_journal(settings: KafkaSettings, group_id: str) -> JournalContent:
    """The journal as committed; empty if this group was never rolled."""
    topic = journal_topic(group_id)
    if topic not in _metadata(QuietAdmin(settings)).topics:
        return JournalContent()
    lease: Lease | None = None
    rollouts: dict[str, RolloutRecord] = {}
    steps: dict[str, dict[str, Step]] = {}
    for record in read_to_end(settings, topic, timeout_seconds=CALL_TIMEOUT_SECONDS).records:
        if record.value is None:
            continue
        key = (record.key or b"").decode(errors="replace")
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
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"The journal {topic} holds a record that is not understood, with key {key!r}: {error}.",
                expected=f"records of schema {SCHEMA}, as this version of the package writes them",
                remedy="Use the version that wrote it; or, if no rollout is under way, delete the topic.",
            ) from error
    return JournalContent(lease, rollouts, steps)


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


class Journal:
    """The right to write the journal of one group, held as long as nobody fences it.

    :param lease_seconds: how long the lease lives without a renewal.
    """

    def __init__(self, settings: KafkaSettings, group_id: str, *, lease_seconds: float, actor: str = "") -> None:
        self._settings = settings
        self._group_id = group_id
        self._topic = journal_topic(group_id)
        self._lease_seconds = lease_seconds
        self._actor = actor
        self._owner = Owner.this_process()
        self._producer: Producer | None = None
        self._rollout_id = ""
        self._step = ""
        self._renew_at = 0.0

    def acquire(self) -> JournalContent:
        """Take the lease and fence whoever wrote before.

        The journal is read before the producer is initialised, because initialising fences: a live owner must be
        left alone. It is read again afterwards; a lease that appeared in between belongs to a controller that has
        just been fenced, which may still be busy with the one act that it announced, so it is waited for.

        :raises LeaseHeldError: another controller holds it.
        """
        self._require_free(read_journal(self._settings, self._group_id).lease)
        self._create_topic()
        self._producer = quiet_producer(
            self._settings, Complaints(), transactional_id=self._topic, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._guarded(lambda producer: producer.init_transactions(CALL_TIMEOUT_SECONDS))
        content = read_journal(self._settings, self._group_id)
        self._require_free(content.lease)
        return content

    def begin(self, rollout: RolloutRecord, superseded: Iterable[RolloutRecord] = ()) -> None:
        """Write the lease and the rollout that is begun or taken up.

        :param superseded: other rollouts of the group; those that were never finished are closed, for from now on the
            cluster is no longer as they left it.
        """
        self._rollout_id = rollout.rollout_id
        records = [rollout] + [
            replace(other, state=RolloutState.SUPERSEDED) for other in superseded if other.state.is_open
        ]
        self._write({ROLLOUT_KEY + record.rollout_id: asdict(record) for record in records}, step="begin")

    def record(self, step: Step) -> int:
        """Write one step and renew the lease.

        :returns: the broker's time of the record, milliseconds since the epoch.
        :raises FencedError: another controller has taken over.
        """
        return self._write(
            {f"{STEP_KEY}{self._rollout_id}/{step.worker_id}": asdict(step)}, step=f"{step.worker_id}: {step.status}"
        )

    def renew(self) -> None:
        """Keep the lease alive while waiting; writes only when a third of its time has passed.

        :raises FencedError: another controller has taken over.
        """
        if time.time() >= self._renew_at:
            self._write({}, step=self._step)

    def end(self, rollout: RolloutRecord) -> None:
        """Write how the rollout stands and give the lease back."""
        self._write({ROLLOUT_KEY + rollout.rollout_id: asdict(rollout)}, step=str(rollout.state), released=True)

    def close(self) -> None:
        self._producer = None  # nothing is open between two records, so there is nothing to abort

    def _require_free(self, lease: Lease | None) -> None:
        if lease is None or lease.owner == self._owner or not lease.is_held(time.time()):
            return
        raise LeaseHeldError(
            f"Group {self._group_id} is being rolled by {lease.owner}"
            f"{f' for {lease.actor}' if lease.actor else ''}: rollout {lease.rollout_id}, {lease.step}. "
            f"Its lease runs until {time.strftime('%H:%M:%S', time.localtime(lease.expires_at))}.",
            remedy="Wait until it is done; if that process is dead, its lease ends by itself.",
        )

    def _create_topic(self) -> None:
        admin = QuietAdmin(self._settings)
        metadata = _metadata(admin)
        if self._topic in metadata.topics:
            return
        topic = NewTopic(
            self._topic,
            num_partitions=1,
            replication_factor=min(3, len(metadata.brokers)),
            config={
                "cleanup.policy": "compact",
                # The broker's clock dates the moment from which every worker is proven in the new mode.
                "message.timestamp.type": "LogAppendTime",
            },
        )
        try:
            admin.client.create_topics([topic], operation_timeout=CALL_TIMEOUT_SECONDS)[self._topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise admin.explain(error, f"whether the journal topic {self._topic} is created") from error

    def _write(self, documents: Mapping[str, Mapping[str, Any]], *, step: str, released: bool = False) -> int:
        self._step = step
        now = time.time()
        lease = Lease(self._owner, self._rollout_id, self._actor, step, now + self._lease_seconds, released)
        appended: list[int] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                appended.append(message.timestamp()[1])

        def send(producer: Producer) -> None:
            producer.begin_transaction()
            for key, document in {LEASE_KEY: asdict(lease), **documents}.items():
                value = json.dumps({"schema": SCHEMA, **document}, sort_keys=True).encode()
                producer.produce(self._topic, key=key.encode(), value=value, on_delivery=on_delivery)
            producer.commit_transaction(CALL_TIMEOUT_SECONDS)

        self._guarded(send)
        self._renew_at = now + self._lease_seconds / 3
        return max(appended)

    def _guarded(self, act: Callable[[Producer], None]) -> None:
        """Run one transactional act; a fenced producer means that another controller has taken over."""
        if self._producer is None:
            raise FencedError("This controller does not hold the journal.")
        try:
            act(self._producer)
        except KafkaException as error:
            code = error.args[0].code()
            if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                self._producer = None
                raise FencedError(
                    f"Another controller has taken over group {self._group_id}; this one does no more.",
                    remedy="Follow the other one, or look at the journal.",
                ) from error
            raise UnreachableError(
                f"The journal {self._topic} cannot be written: {error.args[0].str()}.",
                remedy="A step that cannot be announced is not done; make the broker answer and try again.",
            ) from error


def _metadata(admin: QuietAdmin) -> ClusterMetadata:
    try:
        return admin.client.list_topics(timeout=CALL_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise admin.explain(error, "its topics") from error


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
