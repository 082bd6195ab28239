"""The journal of rollouts: one small compacted topic per group, written in transactions, with the lease in it.

Every act of a controller is preceded by a record here. The records are written under the transactional id
``eos-rollout-<group>``, so a controller that has taken over fences the one before it: that one's next record is
refused, and it stops before it touches a worker. What is only asked of a controller is written without a transactional
id (:func:`ask`), so that asking fences nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ClusterMetadata, NewTopic  # type: ignore[attr-defined]

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, LeaseHeldError, UnreachableError
from airflow_eos_provider.kafka.clients import Complaints, QuietAdmin, quiet_producer
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.log import Reach, read_to_end
from airflow_eos_provider.rollout.records import (
    LEASE_KEY,
    REQUEST_KEY,
    ROLLOUT_KEY,
    SCHEMA,
    STEP_KEY,
    Event,
    JournalContent,
    Lease,
    Owner,
    Request,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
    content_of,
    encode,
)

__all__ = [
    "Journal",
    "JournalContent",
    "Lease",
    "Owner",
    "RolloutRecord",
    "RolloutState",
    "Step",
    "StepStatus",
    "ask",
    "journal_topic",
    "read_journal",
    "require_free",
]

#: An open journal transaction holds up every reader of the journal, so it may not live long.
TRANSACTION_TIMEOUT_MS = 15_000
CALL_TIMEOUT_SECONDS = 20.0

#: A controller that was killed in mid-transaction holds up readers until the broker ends that, which it looks for every
#: ten seconds (``transaction.abort.timed.out.transaction.cleanup.interval.ms``).
READ_TIMEOUT_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 10.0 + 10.0

#: A look for requests must not hold up a roll; what it misses, the next look finds.
REQUEST_TIMEOUT_SECONDS = 5.0

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def journal_topic(group_id: str) -> str:
    """The journal topic of a group; its transactional id has the same name."""
    return f"eos-rollout-{group_id}"


def read_journal(settings: KafkaSettings, group_id: str) -> JournalContent:
    """The journal as committed; empty if this group was never rolled.

    :raises ConfigurationError: it holds what this version does not understand.
    """
    topic = journal_topic(group_id)
    if topic not in _metadata(QuietAdmin(settings)).topics:
        return JournalContent()
    read = read_to_end(settings, topic, timeout_seconds=READ_TIMEOUT_SECONDS)
    try:
        return content_of(read.records, read.end_offsets[0])
    except ValueError as error:
        raise ConfigurationError(
            f"The journal {topic} holds a record that is not understood, {error}.",
            expected=f"records of schema {SCHEMA}, as this version of the package writes them",
            remedy="Use the version that wrote it; or, if no rollout is under way, delete the topic.",
        ) from error


def ask(settings: KafkaSettings, group_id: str, request: Request) -> None:
    """Leave a request for the controller of a rollout, which looks for it before each act and while it waits.

    :raises UnreachableError: it could not be written.
    """
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    complaints = Complaints()
    producer = quiet_producer(settings, complaints, enable_idempotence=True)
    key = (REQUEST_KEY + request.rollout_id).encode()
    producer.produce(journal_topic(group_id), key=key, value=encode(request), on_delivery=on_delivery)
    if producer.flush(CALL_TIMEOUT_SECONDS) or failures:
        words = failures[0].str() if failures else complaints.last or "no answer in time"
        raise UnreachableError(
            f"The request could not be written to {journal_topic(group_id)}: {words}.",
            remedy="Make the broker answer, and see that this principal may write to that topic.",
        )


def require_free(lease: Lease | None, group_id: str, task: str = "") -> None:
    """Go on only if nobody holds the group.

    :param task: the task that asks: what it held itself while it was deferred is free for it.
    :raises LeaseHeldError: somebody does; naming owner, step and expiry.
    """
    if lease is None or not lease.is_held(time.time()) or lease.belongs_to(task):
        return
    raise LeaseHeldError(
        f"Group {group_id} is being rolled by {lease}. Its lease runs until {_clock(lease.expires_at)}.",
        remedy="Wait until it is done, or ask it to stop ('eos rollout pause'). If it hangs, its lease ends by itself; "
        "who knows that it must not go on takes over with --take-over.",
    )


class Journal:
    """The right to write the journal of one group, held as long as nobody fences it.

    :param lease_seconds: how long the lease lives without a renewal.
    :param act_seconds: within this time the act that was announced last, a stop or a start, is over.
    :param actor: who asked for it.
    :param reason: why.
    :param task: the Airflow task that this process carries out, as ``<dag>/<run>/<task>``; it holds the lease while it
        is deferred.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group_id: str,
        *,
        lease_seconds: float,
        act_seconds: float,
        actor: str = "",
        reason: str = "",
        task: str = "",
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._topic = journal_topic(group_id)
        self._lease_seconds = lease_seconds
        self._act_seconds = act_seconds
        self._actor = actor
        self._reason = reason
        self._task = task
        self._owner = Owner.this_process()
        self._producer: Producer | None = None
        self._rollout_id = ""
        self._step = ""
        self._renew_at = 0.0
        self._position = 0
        self._request: Request | None = None
        self._taken_over = ""

    def acquire(self, *, take_over: bool = False) -> JournalContent:
        """Take the lease and fence whoever wrote before.

        The journal is read before the producer is initialised, because initialising fences: a live owner must be
        left alone. It is read again afterwards. A lease that is held then belongs to a controller that has just been
        fenced (it came in between, or it is taken over by force). It can announce nothing more, but may still be busy
        with the one act that it has announced, so that act is waited for: until its process is gone, or its time over.

        :param take_over: fence even a controller whose lease still runs.
        :raises LeaseHeldError: another controller holds it.
        """
        before = read_journal(self._settings, self._group_id).lease
        if not take_over:
            require_free(before, self._group_id, self._task)
        self._create_topic()
        self._producer = quiet_producer(
            self._settings, Complaints(), transactional_id=self._topic, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._guarded(lambda producer: producer.init_transactions(CALL_TIMEOUT_SECONDS))
        content = read_journal(self._settings, self._group_id)
        self._position = content.end_offset
        is_own = content.lease is not None and content.lease.belongs_to(self._task)
        self._taken_over = "" if is_own else _taken_over(content.lease, by_force=take_over)
        while content.lease is not None and content.lease.may_be_acting(time.time()):
            time.sleep(0.2)
        return content

    def begin(
        self,
        rollout: RolloutRecord,
        superseded: Iterable[RolloutRecord] = (),
        *,
        taken_up: bool = False,
        comes_back: bool = False,
        request: Request | None = None,
        dismissed: bool = False,
    ) -> None:
        """Write the lease and the rollout that is begun or taken up.

        :param superseded: other rollouts of the group; those that were never finished are closed, for from now on the
            cluster is no longer as they left it.
        :param taken_up: whether it had been begun before.
        :param comes_back: whether a deferred task only goes on, which happens at each gate and is no event.
        :param request: what was asked of this rollout while nobody carried it out.
        :param dismissed: whether that request is set aside; it is answered otherwise, before the first act.
        """
        self._rollout_id = rollout.rollout_id
        self._request = None if dismissed else request
        records: list[RolloutRecord | Event] = [rollout]
        if not comes_back:
            records.append(self._event(rollout.rollout_id, "taken up" if taken_up else "begun", self._taken_over))
        for other in superseded:
            if other.state.is_open:
                records.append(replace(other, state=RolloutState.SUPERSEDED))
                records.append(
                    self._event(other.rollout_id, str(RolloutState.SUPERSEDED), f"by rollout {rollout.rollout_id}")
                )
        documents: dict[str, bytes | None] = {_key(record): encode(record) for record in records}
        if dismissed:
            documents[REQUEST_KEY + rollout.rollout_id] = None
        self._write(documents, step="begin")

    def record(self, step: Step) -> int:
        """Write one step and renew the lease.

        :returns: the broker's time of the record, milliseconds since the epoch.
        :raises FencedError: another controller has taken over.
        """
        return self._write(
            {f"{STEP_KEY}{self._rollout_id}/{step.worker_id}": encode(step)},
            step=f"{step.worker_id}: {step.status}",
            acting=step.status.announces_an_act,
        )

    def confirm(self, act: str) -> None:
        """Prove, right before an act that was announced, that nobody has taken over since.

        A process can be stopped at any moment, for longer than its lease lives. What it does when it goes on must not
        rest on what it announced before, so each change of a file and each stop of a worker asks here first.

        :raises FencedError: another controller has taken over.
        :raises UnreachableError: that cannot be told.
        """
        self._write({}, step=act, acting=True)

    def renew(self) -> None:
        """Keep the lease alive while waiting; writes only when a third of its time has passed.

        :raises FencedError: another controller has taken over.
        """
        if time.time() >= self._renew_at:
            self._write({}, step=self._step)

    def hand_over(self, step: str, until: float) -> None:
        """Leave the lease to the task, which is about to be deferred and then has no process.

        :param step: what it waits for.
        :param until: when the lease ends, seconds since the epoch; later than any wait.
        :raises FencedError: another controller has taken over.
        """
        self._owner = Owner.deferred_task(self._task)
        self._write({}, step=step, expires_at=until)

    def request(self) -> Request | None:
        """What somebody asks of this rollout; None if nothing was asked, or if that cannot be read just now."""
        reach = Reach(start={0: self._position})
        try:
            read = read_to_end(self._settings, self._topic, reach, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
        except EosError:
            return self._request
        self._position = read.end_offsets[0]
        self._request = content_of(read.records).requests.get(self._rollout_id, self._request)
        return self._request

    def end(self, rollout: RolloutRecord) -> None:
        """Write how the rollout stands, answer what was asked of it, and give the lease back."""
        self._rollout_id = rollout.rollout_id
        event = self._event(rollout.rollout_id, str(rollout.state), rollout.note)
        records: dict[str, bytes | None] = {_key(rollout): encode(rollout), event.key: encode(event)}
        if self._request is not None:
            records[REQUEST_KEY + rollout.rollout_id] = None
        self._write(records, step=str(rollout.state), released=True)

    def close(self) -> None:
        self._producer = None  # nothing is open between two records, so there is nothing to abort

    def _event(self, rollout_id: str, what: str, note: str) -> Event:
        return Event(rollout_id, time.time(), what, self._actor, str(self._owner), self._reason, note)

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

    def _write(
        self,
        records: Mapping[str, bytes | None],
        *,
        step: str,
        released: bool = False,
        acting: bool = False,
        expires_at: float | None = None,
    ) -> int:
        """Write records and the lease in one transaction; returns the broker's time of the last."""
        self._step = step
        now = time.time()
        expires_at = expires_at or now + self._lease_seconds
        acts_until = now + self._act_seconds if acting else 0.0
        lease = Lease(self._owner, self._rollout_id, self._actor, step, expires_at, released, acts_until)
        appended: list[int] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                appended.append(message.timestamp()[1])

        def send(producer: Producer) -> None:
            producer.begin_transaction()
            for key, value in {LEASE_KEY: encode(lease), **records}.items():
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
            if code in _FENCED:
                self._producer = None
                raise FencedError(
                    f"Another controller has taken over group {self._group_id}; this one does no more.",
                    remedy="Follow the other one ('eos rollout show').",
                ) from error
            raise UnreachableError(
                f"The journal {self._topic} cannot be written: {error.args[0].str()}.",
                remedy="A step that cannot be announced is not done; make the broker answer and try again.",
            ) from error


def _key(record: RolloutRecord | Event) -> str:
    return record.key if isinstance(record, Event) else ROLLOUT_KEY + record.rollout_id


def _taken_over(lease: Lease | None, *, by_force: bool) -> str:
    """In words for the history, from whom; empty if the group was given back."""
    if lease is None or lease.released:
        return ""
    if lease.owner.is_proven_dead:
        why = "its process is gone"
    elif time.time() >= lease.expires_at:
        why = f"its lease ended at {_clock(lease.expires_at)}"
    elif by_force:
        why = f"by --take-over, its lease ran until {_clock(lease.expires_at)}"
    else:
        why = "it began at the same moment"
    return f"taken over from {lease}; {why}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _metadata(admin: QuietAdmin) -> ClusterMetadata:
    try:
        return admin.client.list_topics(timeout=CALL_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise admin.explain(error, "its topics") from error
