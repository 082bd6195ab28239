"""The journal of a group: one small compacted topic per group, written in transactions, with the lease in it.

Every act of a controller is preceded by a record here. The records are written under the transactional id
``eos-rollout-<group>``, so a controller that has taken over fences the one before it: that one's next record is
refused, and it stops before it touches a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from airflow_eos_provider.errors import EosError, FencedError, LeaseHeldError, RefusedError, UnreachableError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal_topic import ask, clock_of, prepare_journal, read_journal
from airflow_eos_provider.journal.journal_transactions import JournalTransactions, UnsettledError
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import (
    CHANGE_KEY,
    LEASE_KEY,
    REQUEST_KEY,
    ROLLOUT_KEY,
    STEP_KEY,
    ChangeRecord,
    Event,
    Lease,
    Owner,
    Request,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
    encode,
)
from airflow_eos_provider.kafka.kafka_session import Kafka, settings_of

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

#: How long a group stays reserved after a controller dies, and within which time one act of a change is over, seconds.
LEASE_SECONDS = 120.0
ACT_SECONDS = 60.0

#: A look for requests must not hold up a roll; what it misses, the next look finds.
REQUEST_TIMEOUT_SECONDS = 5.0

#: Clocks that differ by less are taken for one: the broker's time is known to within an answer of its.
ONE_CLOCK_SECONDS = 10.0


def require_free(lease: Lease | None, group_id: str, task: str = "", *, now: Callable[[], float]) -> None:
    """Go on only if no other controller holds the group.

    :param task: the task that asks: what it held itself while it was deferred is free for it.
    :param now: the broker's time, seconds since the epoch; asked only where it decides.
    """
    if lease is None or lease.released or lease.belongs_to(task) or lease.owner.is_proven_dead:
        return
    moment = now()
    if not lease.is_held(moment):
        return
    raise LeaseHeldError(
        f"Group {group_id} is being changed by {lease}. Its lease runs until {_clock(lease.expires_at - moment)}.",
        remedy="Wait until it is done, or ask a roll to stop ('eos rollout pause'). If it hangs, its lease ends by "
        "itself; to end it, take over with --take-over.",
    )


class Journal:
    """The right to write the journal of one group, held until another controller fences it.

    :param act_seconds: within this time the act that was announced last, a stop or a start, is over.
    :param task: the Airflow task that this process carries out, as ``<dag>/<run>/<task>``; it holds the lease while it
        is deferred.
    """

    def __init__(
        self,
        kafka: Kafka,
        group_id: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        act_seconds: float = ACT_SECONDS,
        actor: str = "",
        reason: str = "",
        task: str = "",
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._kafka = kafka
        self._settings = settings = settings_of(kafka)
        self._group_id = group_id
        self._topic = journal_topic(group_id)
        self._lease_seconds = lease_seconds
        self._act_seconds = act_seconds
        self.actor = actor
        self.reason = reason
        self._task = task
        self._report = report
        self._owner = Owner.this_process()
        self._transactions = JournalTransactions(settings, self._topic, self._topic)
        self._clock = clock_of(settings, group_id)
        self._rollout_id = ""
        self._step = ""
        self._number = 0
        self._last: Lease | None = None  # the lease on record, as far as this controller knows
        self._is_fenced = False
        self._held_until = 0.0  # by the monotonic clock; 0 before anything of this controller is on record
        self._renew_at = 0.0  # likewise
        self._request: Request | None = None
        self._taken_over = ""

    def acquire(self, *, take_over: bool = False) -> JournalContent:
        """Take the lease and fence the controller that wrote before.

        The journal is read before the producer is initialised, because initialising fences: a live owner must be
        left alone. It is read again afterwards. A lease that is held then belongs to a controller that has just been
        fenced (it came in between, or it is taken over by force). It can announce nothing more, but may still be busy
        with the one act that it has announced, so that act is waited for: until its process is gone, or its time over.
        """
        before = read_journal(self._kafka, self._group_id)
        if not take_over:
            self._require_known_lease(before)
            require_free(before.lease, self._group_id, self._task, now=self._clock.now)
        prepare_journal(self._settings, self._group_id, self._report)
        try:
            self._transactions.init()
        except FencedError as error:
            raise self._overtaken() from error
        content = read_journal(self._kafka, self._group_id)
        self._last = content.lease
        if content.lease is not None and not content.lease.released:
            is_own = content.lease.belongs_to(self._task)
            self._taken_over = "" if is_own else _taken_over(content.lease, self._clock.now(), by_force=take_over)
            while content.lease.may_be_acting(self._clock.now()):
                time.sleep(0.2)
        return content

    def _require_known_lease(self, content: JournalContent) -> None:
        if LEASE_KEY in content.unreadable:
            raise RefusedError(
                f"eos cannot tell who rolls group {self._group_id}: its journal {content.unreadable[LEASE_KEY].why}.",
                remedy="Use the version that wrote it; or, if no controller rolls the group, use --take-over.",
            )

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
        :param comes_back: whether a deferred task only goes on, which happens at each gate and is no event.
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
        """
        return self._write(
            {f"{STEP_KEY}{self._rollout_id}/{step.worker_id}": encode(step)},
            step=f"{step.worker_id}: {step.status}",
            acting=step.status.announces_an_act,
        )

    def withdraw(self, worker_id: str, before: Step | None) -> None:
        """Take an announcement back: nothing of it was done."""
        key = f"{STEP_KEY}{self._rollout_id}/{worker_id}"
        self._write({key: None if before is None else encode(before)}, step=f"{worker_id}: not touched")

    def confirm(self, act: str) -> None:
        """Prove, right before an act that was announced, that no other controller has taken over since.

        A process can be stopped at any moment, for longer than its lease lives. What it does when it goes on must not
        rest on what it announced before, so each change of a file and each stop of a worker asks here first.
        """
        self._write({}, step=act, acting=True)

    def renew(self) -> None:
        """Keep the lease alive while waiting; writes only when a third of its time has passed."""
        if time.monotonic() >= self._renew_at:
            self._write({}, step=self._step)

    def hand_over(self, step: str, until: float) -> None:
        """Leave the lease to the task, which is about to be deferred and then has no process.

        :param until: when the lease ends, seconds since the epoch by this machine's clock; later than any wait.
        """
        self._owner = Owner.deferred_task(self._task)
        self._write({}, step=step, lasts_seconds=max(0.0, until - time.time()))

    def request(self) -> Request | None:
        """What is asked of this rollout; None if nothing is, or if that cannot be read just now."""
        try:
            content = read_journal(self._kafka, self._group_id, REQUEST_TIMEOUT_SECONDS)
        except EosError:
            return self._request
        self._request = content.requests.get(self._rollout_id, self._request)
        return self._request

    def end(self, rollout: RolloutRecord) -> None:
        """Write the state of the rollout, answer what was asked of it, and give the lease back."""
        self._rollout_id = rollout.rollout_id
        event = self._event(rollout.rollout_id, str(rollout.state), rollout.note)
        records: dict[str, bytes | None] = {_key(rollout): encode(rollout), event.key: encode(event)}
        if self._request is not None:
            records[REQUEST_KEY + rollout.rollout_id] = None
        self._write(records, step=str(rollout.state), released=True)

    def write_change(self, change: ChangeRecord, event: str = "") -> None:
        """Write how far a change has come. The lease is given back once it does not run any more."""
        self._rollout_id = change.change_id
        records: dict[str, bytes | None] = {CHANGE_KEY + change.change_id: encode(change)}
        if event:
            line = self._event(change.change_id, event, change.note or self._taken_over)
            records[line.key] = encode(line)
        is_over = change.state is not RolloutState.RUNNING
        step = str(change.state) if is_over else change.under_way or "between two steps"
        self._write(records, step=step, released=is_over, acting=bool(change.under_way))

    def by_this_clock(self, step: Step) -> Step:
        """A step with the moment of its restart by this machine's clock, whichever machine has announced it."""
        here = step.announced_at_ms / 1000 - self._clock.now() + time.time()
        if not step.announced_at_ms or abs(here - step.restarted_after) < ONE_CLOCK_SECONDS:
            return step  # what was written down is the more exact
        return replace(step, restarted_after=here)

    def left_behind(self) -> str:
        """What a controller that could not write its end leaves on record, in words; empty if it is nothing."""
        remaining = self._held_until - time.monotonic()
        if self._is_fenced or self._last is None or self._last.released or remaining <= 0:
            return ""
        return (
            f"it stays {RolloutState.RUNNING} in the journal, and its lease is not renewed and ends by "
            f"{_clock(remaining)}; it can be resumed then, or as soon as this process is proven to be gone"
        )

    def close(self) -> None:
        self._transactions.close()  # nothing is open between two records, so there is nothing to abort

    def _event(self, rollout_id: str, what: str, note: str) -> Event:
        return Event(rollout_id, time.time(), what, self.actor, str(self._owner), self.reason, note)

    def _write(
        self,
        records: Mapping[str, bytes | None],
        *,
        step: str,
        released: bool = False,
        acting: bool = False,
        lasts_seconds: float | None = None,
    ) -> int:
        """Write records and the lease in one transaction; returns the broker's time of the last."""
        self._step = step
        self._number += 1
        lasts = self._lease_seconds if lasts_seconds is None else lasts_seconds
        acts = self._act_seconds if acting else 0.0
        lease = Lease(self._owner, self._rollout_id, self.actor, step, lasts, released, acts, self._number)
        documents = {LEASE_KEY: encode(lease), **records}
        began = time.monotonic()
        appended_at_ms = self._settled_write(documents, lease)
        self._clock.note(appended_at_ms)
        self._last, self._held_until = lease, began + lasts
        self._renew_at = began + self._lease_seconds / 3
        return appended_at_ms

    def _settled_write(self, documents: Mapping[str, bytes | None], lease: Lease) -> int:
        """Write; where it is not known whether that took effect, reading decides, and it is written once more."""
        if self._is_fenced:
            raise self._overtaken()
        try:
            try:
                if not self._transactions.is_open:  # given up at the write before
                    self._settle(lease)
                return self._transactions.write(documents)
            except UnsettledError:
                appended_at_ms = self._settle(lease)
                return self._transactions.write(documents) if appended_at_ms is None else appended_at_ms
        except FencedError as error:
            raise self._overtaken() from error
        except UnsettledError as error:
            raise self._not_written(error.found) from error

    def _settle(self, wanted: Lease) -> int | None:
        """Find out whether a write took effect whose producer was given up, and become able to write again.

        Kafka may answer a commit that meets an init of the same id with "unknown server error". Initialising fences
        whoever has the id, so that is done only while this controller's lease lasts and the journal says that nobody
        has come in between.

        :returns: the broker's time of that write; None if it did not take effect.
        """
        found = read_journal(self._kafka, self._group_id).lease
        took_effect = wanted.is_same_write(found)
        is_as_before = found.is_same_write(self._last) if found is not None else self._last is None
        if not (took_effect or is_as_before):
            raise self._overtaken()
        if found is None or not (took_effect or self._held_until):
            raise self._not_written("nothing of this rollout is on record yet")
        if took_effect and wanted.released:
            return found.appended_at_ms
        if self._clock.now() >= found.expires_at:
            raise self._not_written("the lease of this controller has ended")
        self._transactions.init()
        if not found.is_same_write(read_journal(self._kafka, self._group_id).lease):
            raise self._overtaken()
        return found.appended_at_ms if took_effect else None

    def _not_written(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"The journal {self._topic} cannot be written: {why.removesuffix('.')}.",
            remedy="Make the broker answer and try again: eos acts only after it has announced the step.",
        )

    def _overtaken(self) -> FencedError:
        self._transactions.close()
        self._is_fenced = True
        return FencedError(
            f"Another controller has taken over group {self._group_id}; this controller stops.",
            remedy="Follow the other one ('eos rollout show').",
        )


def _key(record: RolloutRecord | Event) -> str:
    return record.key if isinstance(record, Event) else ROLLOUT_KEY + record.rollout_id


def _taken_over(lease: Lease, now: float, *, by_force: bool) -> str:
    """In words for the history, from whom."""
    until = _clock(lease.expires_at - now)
    if lease.owner.is_proven_dead:
        why = "its process is gone"
    elif now >= lease.expires_at:
        why = f"its lease ended at {until}"
    elif by_force:
        why = f"by --take-over, its lease ran until {until}"
    else:
        why = "it began at the same moment"
    return f"taken over from {lease}; {why}"


def _clock(seconds_from_now: float) -> str:
    """A moment as this machine's clock will show it."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds_from_now))
