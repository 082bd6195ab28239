"""The transactional ids that the coordinators of a Kafka cluster know, and the owner of each."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.transactional_ids import KnownGroup, claims, leader_id, leaders, task_of
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.kafka.kafka_session import Session

#: A coordinator looks for transactions past their timeout now and then
#: (``transaction.abort.timed.out.transaction.cleanup.interval.ms``).
_ABORT_SECONDS = 10.0

#: Limit of the one request for all topics, seconds.
_LIST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes under a transactional id.

    :param group_id: of the Connect group; None if it is not this one's.
    :param connector: whose task it is; None if it is none.
    """

    text: str
    group_id: str | None = None
    connector: str | None = None


def owner_of(
    transactional_id: str, group_id: str, connectors: Collection[str] | None, others: Iterable[KnownGroup] = ()
) -> Owner:
    """Who writes under an id, as far as the groups of the Kafka cluster can tell.

    The id ``a-b-c-0`` may be that of the connector ``b-c`` in the group ``a``, or of ``c`` in ``a-b``. So only a
    connector that the group knows is called one of its own; where another group claims the id too, both are named.

    :param connectors: that exist, or existed, in the group; None if they are not known, so that the name decides.
    """
    if transactional_id == leader_id(group_id):
        return Owner("the leader, for the config topic", group_id)
    if transactional_id == journal_topic(group_id):
        return Owner("eos, for its journal", group_id)
    claiming = claims(transactional_id, others)
    theirs = [_said(transactional_id, other) for other in claiming]
    task = task_of(transactional_id, group_id)
    is_named = connectors is None and not any(other.connectors for other in claiming)
    if task is not None and (is_named or task.connector in (connectors or ())):
        own = f"{task.connector}, task {task.number}"
        if theirs:
            return Owner(f"{own}; or {' or '.join(theirs)}", group_id, task.connector)
        return Owner(own if connectors is not None else f"perhaps {own}", group_id, task.connector)
    return Owner(" or ".join(theirs) or "not this group")


def _said(transactional_id: str, other: KnownGroup) -> str:
    task = task_of(transactional_id, other.group_id)
    if task is None or transactional_id == leader_id(other.group_id):
        return f"group {other.group_id}: the leader"
    perhaps = "" if other.connectors else "perhaps "
    return f"group {other.group_id}: {perhaps}{task.connector}, task {task.number}"


@dataclass(frozen=True, slots=True)
class KnownId:
    """One transactional id.

    :param used_at: when it was last used by its coordinator's log, seconds since the epoch; None where that was not
        read: its coordinator reports its last transaction, if it had one since its producer took it.
    """

    description: TransactionDescription
    owner: Owner
    used_at: float | None = None

    @property
    def id(self) -> str:
        return self.description.transactional_id

    def open_seconds(self, now: float) -> float | None:
        """For how long its transaction has been open; None if none is."""
        started = self.description.started_at_ms
        return None if started is None else max(0.0, now - started / 1000)

    def idle_seconds(self, now: float) -> float | None:
        """How long ago its last transaction began, or its last use was; None if neither is known."""
        started = self.description.last_started_at_ms
        used = [self.used_at] if started is None else [started / 1000, self.used_at]
        return min((max(0.0, now - each) for each in used if each is not None), default=None)

    def is_overdue(self, now: float) -> bool:
        """Whether its coordinator should have ended its transaction by now.

        One that is decided waits for its markers, which no timeout ends: past its timeout it is stuck as well.
        """
        seconds = self.open_seconds(now)
        return seconds is not None and seconds > self.description.timeout_ms / 1000 + _ABORT_SECONDS

    def to_dict(self, now: float) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        described = self.description
        return {
            "id": self.id,
            "owner": self.owner.text,
            "connector": self.owner.connector,
            "state": str(described.state),
            "producer_id": described.producer_id,
            "producer_epoch": described.producer_epoch,
            "timeout_ms": described.timeout_ms,
            "started_at_ms": described.started_at_ms,
            "open_seconds": self.open_seconds(now),
            "last_started_at_ms": described.last_started_at_ms,
            "overdue": self.is_overdue(now),
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in described.partitions],
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which transactional ids are wanted.

    :param everyone: of the whole Kafka cluster, not of the group alone.
    :param topics: only those with an open transaction in one of these topics.
    """

    everyone: bool = False
    connector: str = ""
    topics: tuple[str, ...] = ()
    open_only: bool = False

    def takes(self, known: KnownId) -> bool:
        described, owner = known.description, known.owner
        return (
            (self.everyone or owner.group_id is not None)
            and self.connector in ("", owner.connector)
            and (not self.topics or any(topic in self.topics for topic, _ in described.partitions))
            and (not self.open_only or described.state.is_open)
        )


def known_ids(
    kafka: Session,
    group_id: str,
    connectors: Collection[str] | None,
    wanted: Filter,
    others: Collection[KnownGroup] = (),
) -> list[KnownId]:
    with kafka.transactions() as client:
        listed = client.list()
        others = with_leaders(others, own_group(group_id, connectors), (one.transactional_id for one in listed))
        ids = [one.transactional_id for one in listed if one.state.is_open or not wanted.open_only]
        owners = {id_: owner_of(id_, group_id, connectors, others) for id_ in ids}
        asked = [id_ for id_ in ids if wanted.everyone or owners[id_].group_id is not None]
        described = client.describe(asked)
    return [known for id_ in sorted(described) if wanted.takes(known := KnownId(described[id_], owners[id_]))]


def named_ids(
    kafka: Session,
    group_id: str,
    connectors: Collection[str] | None,
    ids: Iterable[str],
    others: Collection[KnownGroup] = (),
) -> list[KnownId]:
    """These transactional ids; those that no coordinator knows are left out."""
    with kafka.transactions() as client:
        described = client.describe(ids)
        others = with_leaders(
            others, own_group(group_id, connectors), (one.transactional_id for one in client.list(leader_id("")))
        )
    return [KnownId(described[id_], owner_of(id_, group_id, connectors, others)) for id_ in sorted(described)]


def hidden_ids(kafka: Session, ids: Iterable[str] = ()) -> tuple[str, ...]:
    """Of these ids those that the principal may not describe, and so does not see either; whether they exist or not.

    :param ids: empty to ask for one that nobody uses: whether any may be hidden. A rule that denies some alone cannot
        be noticed so.
    """
    wanted = sorted(ids) or [secrets.token_hex(12)]
    with kafka.transactions() as client:
        seen = client.may_describe(wanted)
    return tuple(one for one in wanted if one not in seen)


def with_leaders(others: Collection[KnownGroup], own: KnownGroup, ids: Iterable[str]) -> list[KnownGroup]:
    """The other groups, with those that have no worker now: the brokers know their leaders' ids for some days."""
    known = [own, *others]
    led = leaders(ids, known).keys() - {group.group_id for group in known}
    return [*others, *map(KnownGroup, sorted(led))]


def own_group(group_id: str, connectors: Collection[str] | None) -> KnownGroup:
    return KnownGroup(group_id, None if connectors is None else frozenset(connectors))


def hidden_topics(kafka: Session) -> str:
    """Why there may be topics that the principal does not see; empty if it sees all.

    The brokers leave out of their list what it may not describe. So a topic that nobody has is asked for: that it is
    not there, they say only to whom may describe it. A rule that denies some topics alone cannot be noticed.
    """
    name = secrets.token_hex(12)
    with kafka.admin() as admin:
        if admin.allowed([name], _LIST_SECONDS)[name] is None:
            return ""
    who = kafka.settings.who
    return f"topics that {who} may not see (Describe on every topic)"


def no_topic(kafka: Session, names: Collection[str]) -> ConfigurationError:
    who = kafka.settings.who
    return ConfigurationError(
        f"There is no topic {', '.join(sorted(names))}, or {who} may not see it.",
        remedy=f"Check its name; if it is there, {who} needs Describe on it.",
    )


def id_expiration_seconds(kafka: Session) -> float | None:
    """``transactional.id.expiration.ms`` of a broker, in seconds; None if it does not say, or may not say it to us."""
    with kafka.admin() as admin, suppress(EosError, KeyError, ValueError):
        broker = min(admin.cluster(_LIST_SECONDS).ports)
        milliseconds = admin.broker_settings(broker, _LIST_SECONDS)["transactional.id.expiration.ms"]
        return None if milliseconds is None else float(milliseconds) / 1000
    return None
