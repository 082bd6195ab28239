"""The audit of a Kafka cluster's transactions: blocked readers, tasks that are about to fail, and collisions.

All of it takes values and returns values; :mod:`~airflow_eos_provider.transactions.auditor` gathers them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_eos_provider.connect.cluster.other_kafka import OVERRIDES
from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.transactional_ids import leader_id
from airflow_eos_provider.data_text import LINE_CHARACTERS, counted, duration, first_few, one_line
from airflow_eos_provider.finding import Audit, Finding, Verdict
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.transactions.collisions import Collision
from airflow_eos_provider.transactions.hanging import Hanging, HangingLook
from airflow_eos_provider.transactions.known_ids import KnownId
from airflow_eos_provider.transactions.readable_ends import EndsOrWhy, PartitionEnds

_DAY_SECONDS = 86_400.0

#: So many partitions that could not be seen are named.
_SHOWN = 3


class FindingKind(StrEnum):
    HANGING = "hanging"
    LOST_MARKER = "lost marker"
    OPEN = "open too long"
    IDLE = "idle id"
    COLLISION = "collision"


@dataclass(frozen=True, slots=True)
class Limits:
    """What an audit takes for too long.

    :param open_seconds: of an open transaction; None for its own timeout.
    :param idle_part: part of ``transactional.id.expiration.ms`` after which an idle id is named.
    :param days_before: or so many days before it is over, whichever comes first; but never in its first half.
    """

    open_seconds: float | None = None
    idle_part: float = 0.75
    days_before: float = 2.0

    def idle_seconds(self, expiration_seconds: float) -> float:
        """After how many seconds an idle id is named."""
        before = max(expiration_seconds - self.days_before * _DAY_SECONDS, expiration_seconds / 2)
        return min(self.idle_part * expiration_seconds, before)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at a Kafka cluster has seen; None for what it could not.

    :param live: by transactional id the connector whose task it is, of tasks that exist.
    :param expected: of those ids the ones that the brokers have to know, see :func:`expected_ids`.
    """

    ids: tuple[KnownId, ...] | None = None
    hanging: HangingLook | None = None
    ends: Mapping[Place, EndsOrWhy] = field(default_factory=dict)
    live: Mapping[str, str] | None = None
    expected: frozenset[str] = frozenset()
    expiration_seconds: float | None = None
    collisions: tuple[Collision, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionAudit(Audit):
    """What one audit of a Kafka cluster's transactions has found.

    :param notes: what does no harm as it is.
    """

    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        whose = f"Transactions on the Kafka cluster of Connect group {self.group_id}"
        if self.findings:
            return f"{whose}: {counted(len(self.findings), 'finding')}."
        if self.doubts:
            return f"{whose}: nothing was found, but not everything could be seen."
        return f"{whose}: none hangs or is open too long."

    def describe(self) -> str:
        notes = (one_line(f"Note: {note}", LINE_CHARACTERS) for note in self.notes)
        return "\n".join((Audit.describe(self), *notes))

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {**Audit.to_dict(self), "notes": list(self.notes)}


def audit(at: float, group_id: str, seen: Seen, limits: Limits = DEFAULT_LIMITS) -> TransactionAudit:
    look = seen.hanging or HangingLook((), (), {})
    findings = (
        *(hanging_finding(one, seen.ends.get(one.held.place)) for one in look.hanging),
        *open_too_long(seen.ids or (), at, limits),
        *idle_ids(seen.ids or (), seen.live or {}, seen.expiration_seconds, at, limits),
        *(collision_finding(each) for each in seen.collisions if each.is_harmful),
    )
    notes = tuple(f"{each.what}; {each.remedy}" for each in seen.collisions if not each.is_harmful)
    doubts = (*seen.doubts, *_unseen(look), *_no_expiration(seen), *_use_not_known(seen), *_not_listed(group_id, seen))
    return TransactionAudit(at, group_id, findings, doubts, notes)


def hanging_finding(one: Hanging, ends: EndsOrWhy | None) -> Finding:
    held = one.held
    place = f"{held.topic}-{held.partition}"
    who = one.transactional_id or f"producer {held.producer_id}, which no coordinator knows"
    waiting = f"; {ends.waiting:,} offsets wait behind it" if isinstance(ends, PartitionEnds) else ""
    since = f"{place} holds a transaction of {who} open since offset {held.start_offset}"
    kind = FindingKind.LOST_MARKER if one.may_be_committed else FindingKind.HANGING
    if one.may_be_committed:
        what = (
            f"{since}, whose last one was committed: the brokers left out its marker here (KAFKA-20734), unless it is "
            f"a late write{waiting}"
        )
        remedy = f"{one.how_to_end} and gives its records up for good: deliver them again"
    else:
        what = f"{since}, which its coordinator does not know there: nobody ends it{waiting}"
        remedy = one.how_to_end
    return _fails(kind, place, what, remedy, f"{held.producer_id} {held.start_offset}")


def open_too_long(ids: Iterable[KnownId], now: float, limits: Limits) -> Iterator[Finding]:
    """Transactions that are open past their timeout, or past a limit that was set."""
    for one in ids:
        seconds = one.open_seconds(now)
        is_long = limits.open_seconds is not None and seconds is not None and seconds > limits.open_seconds
        if seconds is None or not (is_long or one.is_overdue(now)):
            continue
        timeout = one.description.timeout_ms / 1000
        places = [f"{topic}-{number}" for topic, number in one.description.partitions]
        where = first_few(places)
        is_overdue = one.is_overdue(now)
        overdue = "; its coordinator should have ended it" if is_overdue else ""
        yield _fails(
            FindingKind.OPEN,
            one.id,
            f"the transaction of {one.id} ({one.owner.text}) is {one.description.state} for {duration(seconds)} in "
            f"{where or 'no partition yet'}; its timeout is {duration(timeout)}{overdue}",
            _remedy_of_open(one, is_overdue=is_overdue),
        )


def _remedy_of_open(one: KnownId, *, is_overdue: bool) -> str:
    if one.description.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        return "see whether the brokers of these partitions run: it is decided, and ends when each has its marker"
    if is_overdue:
        return "see whether the brokers of these partitions run; 'eos fencing apply' ends that of a connector"
    return "it ends with its producer, or at its timeout; 'eos fencing apply' ends that of a connector"


def idle_ids(
    ids: Iterable[KnownId], live: Collection[str], expiration_seconds: float | None, now: float, limits: Limits
) -> Iterator[Finding]:
    """Ids of tasks that the brokers are about to forget."""
    for one in ids if expiration_seconds else ():
        idle = one.idle_seconds(now)
        if not expiration_seconds or one.id not in live or idle is None or one.description.state.is_open:
            continue
        if idle > limits.idle_seconds(expiration_seconds):
            left = expiration_seconds - idle
            when = f"in {duration(left)}" if left > 0 else "any moment"
            yield _fails(
                FindingKind.IDLE,
                one.id,
                f"the last {'transaction' if one.used_at is None else 'use'} of {one.id} ({one.owner.text}) "
                f"{'began' if one.used_at is None else 'was'} {duration(idle)} ago; the brokers forget "
                f"the id {when} (transactional.id.expiration.ms is {duration(expiration_seconds)}), and its task fails "
                "at its next write then (KAFKA-18019)",
                "restart the task before then, so that it takes the id again; or raise transactional.id.expiration.ms",
            )


def live_ids(group_id: str, state: ClusterState) -> dict[str, str]:
    """By transactional id the connector whose task it is, of tasks that exist. A stopped connector has none."""
    return {
        f"{group_id}-{name}-{number}": name
        for name, connector in state.connectors.items()
        if connector.target_state != "STOPPED"
        for number in range(connector.task_count or 0)
    }


def expected_ids(group_id: str, state: ClusterState) -> frozenset[str]:
    """Ids of tasks that the brokers have to know if the group runs exactly once.

    Those of connectors that are started, and of whose tasks the leader has fenced the ones before. A sink connector has
    no such record; one with producers of its own addresses may have its ids on another Kafka cluster.
    """
    return frozenset(
        f"{group_id}-{name}-{number}"
        for name, connector in state.connectors.items()
        if connector.target_state == "STARTED" and not (connector.inconsistent or connector.pending_fencing)
        if not connector.config.get(OVERRIDES["producer"])
        for number in range(min(connector.task_count or 0, connector.task_count_record or 0))
    )


def collision_finding(each: Collision) -> Finding:
    return _fails(FindingKind.COLLISION, each.subject, each.what, each.remedy, str(each.kind))


def _fails(kind: FindingKind, subject: str, found: str, remedy: str, detail: str = "") -> Finding:
    return Finding(subject, Verdict.FAIL, found, remedy=remedy, kind=kind, detail=detail)


def _unseen(look: HangingLook) -> Iterator[str]:
    for held in look.unseen:
        yield (
            f"whether the transaction of producer {held.producer_id} that {held.topic}-{held.partition} holds open "
            f"since offset {held.start_offset} is alive: not every coordinator could be asked"
        )
    if look.hidden:
        yield f"what hangs in {look.hidden}"
    if look.unknown:
        some = [f"{topic}-{number}: {why}" for (topic, number), why in list(look.unknown.items())[:_SHOWN]]
        more = " …" if len(look.unknown) > _SHOWN else ""
        yield f"what {counted(len(look.unknown), 'partition')} may hold open ({', '.join(some)}{more})"


def _no_expiration(seen: Seen) -> Iterator[str]:
    known = {one.id for one in seen.ids or ()}
    if seen.expiration_seconds is None and known & (seen.live or {}).keys():
        yield "when the brokers forget an idle id: transactional.id.expiration.ms takes DescribeConfigs on the cluster"


def _use_not_known(seen: Seen) -> Iterator[str]:
    """A producer that takes an id clears the time of its last transaction: its coordinator reports no other."""
    unknown = [one.id for one in seen.ids or () if one.id in (seen.live or {}) and one.idle_seconds(0.0) is None]
    if unknown:
        yield (
            f"for how long {counted(len(unknown), 'id')} of tasks {'is' if len(unknown) == 1 else 'are'} idle: no "
            f"transaction since the task has taken it, and no record of it was read ({first_few(unknown)})"
        )


def _not_listed(group_id: str, seen: Seen) -> Iterator[str]:
    """Ids that no coordinator has, while it has the leader's: of a group that is ``disabled`` it would have none."""
    known = {one.id for one in seen.ids or ()}
    missing = sorted(seen.expected - known)
    if missing and leader_id(group_id) in known:
        yield (
            f"{counted(len(missing), 'id')} of tasks that exist ({first_few(missing)}): the brokers have forgotten an "
            "id that they do not name, and its task fails at its next write (KAFKA-18019), unless the task has never "
            "started or the group is not enabled; see 'eos status', and restart the task"
        )
