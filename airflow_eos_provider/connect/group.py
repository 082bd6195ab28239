"""The worker group as the broker sees it: members, leader, config offsets, rebalance delay and placement.

Only the broker knows who is in the group: Connect's REST API has no call for it. From protocol ``compatible`` on, an
assignment holds only what the last rebalance changed, so placement is put together from both payloads of a member.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from airflow_eos_provider.connect.cluster.description import worker_id_of
from airflow_eos_provider.connect.group_bytes import (
    EAGER,
    Assignment,
    Metadata,
    UndecodableError,
    decode_assignment,
    decode_metadata,
)
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.admin.group_coordinators import ask_again, moves
from airflow_eos_provider.kafka.clients import QuietAdmin, explain
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.session import Kafka, session_of
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

__all__ = [
    "Assignment",
    "Member",
    "Metadata",
    "Placement",
    "UndecodableError",
    "WorkerGroup",
    "connect_groups",
    "decode_assignment",
    "decode_metadata",
    "describe_group",
    "known_group",
    "listed_groups",
    "other_groups",
    "other_known_groups",
    "worker_group",
]

PROTOCOL_TYPE = "connect"


@dataclass(frozen=True, slots=True)
class Placement:
    """What one worker runs."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Member:
    """One worker in the group.

    :param url: its REST address; empty while the group gives no metadata (it rebalances).
    :param worker_id: ``host:port``; the host and port of ``url``, else the member id.
    :param config_offset: from its metadata, so as of its last join; -1 if unknown.
    :param problem: why its bytes could not be decoded, None if they could.
    """

    member_id: str
    client_id: str
    client_host: str
    url: str
    worker_id: str
    config_offset: int = -1
    allocation: Assignment | None = None
    assignment: Assignment | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A Connect cluster's group at one moment.

    :param state: ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``, ``Empty`` or ``Dead``.
    :param protocol: ``sessioned``, ``compatible`` or ``default`` (eager); empty while there is none.
    :param members: in the order of their worker ids.
    """

    group_id: str
    state: str
    protocol: str
    protocol_type: str = PROTOCOL_TYPE
    members: tuple[Member, ...] = ()

    @property
    def is_stable(self) -> bool:
        return self.state == "Stable"

    @property
    def leader(self) -> Member | None:
        """The herder leader; None if the members name several, or one that is not among them."""
        named = {member.assignment.leader for member in self.members if member.assignment}
        if len(named) != 1:
            return None
        (leader,) = named
        return next((member for member in self.members if member.member_id == leader), None)

    @property
    def placement(self) -> dict[str, Placement] | None:
        """Who runs what, by worker id.

        None, for *unknown*, unless the group is stable, every member's bytes could be decoded, and no two
        members go by one address.
        """
        if not self.is_stable:
            return None
        placed: dict[str, Placement] = {}
        for member in self.members:
            if member.assignment is None or member.problem or not member.url or member.worker_id in placed:
                return None
            placed[member.worker_id] = _placement_of(self.protocol, member.allocation, member.assignment)
        return placed

    def may_run(self, connector: str) -> bool:
        """Whether a member may still run a task of a connector.

        One that is being revoked runs until its worker has ended it and joins again (``WorkerCoordinator``), and the
        group is called stable meanwhile.
        """
        placement = self.placement
        if placement is None:
            return True
        tasks = [task for placed in placement.values() for task in placed.tasks]
        tasks += [task for member in self.members if member.assignment for task in member.assignment.revoked_tasks]
        return any(name == connector for name, _ in tasks)

    @property
    def config_offsets(self) -> dict[str, int]:
        """The config offset that each member works on, by worker id: its assignment's, else the one it joined with."""
        return {m.worker_id: m.assignment.config_offset if m.assignment else m.config_offset for m in self.members}

    @property
    def delay_ms(self) -> int:
        """The rebalance delay that was to come at the last rebalance, milliseconds; 0 if none."""
        return max((member.assignment.delay_ms for member in self.members if member.assignment), default=0)


def _placement_of(protocol: str, allocation: Assignment | None, assignment: Assignment) -> Placement:
    if protocol == EAGER or allocation is None:
        return Placement(assignment.connectors, assignment.tasks)
    # WorkerCoordinator.onJoinComplete: what it had, less what it must give back, plus what it is given.
    return Placement(
        (allocation.connectors - assignment.revoked_connectors) | assignment.connectors,
        (allocation.tasks - assignment.revoked_tasks) | assignment.tasks,
    )


def describe_group(kafka: Kafka, group_id: str, timeout_seconds: float = 10.0) -> WorkerGroup:
    """The group of a Connect cluster.

    :param kafka: the settings of the Kafka cluster, or a session whose clients are used.
    :param group_id: the workers' ``group.id``.
    :param timeout_seconds: limit of the whole look.
    :raises ConfigurationError: there is no such group, it is not a Connect group, or it may not be described.
    :raises UnreachableError: no broker answers within a few seconds.
    """
    with session_of(kafka) as session, session.admin() as admin:
        return _describe(admin, group_id, timeout_seconds)


def _describe(admin: QuietAdmin, group_id: str, timeout_seconds: float) -> WorkerGroup:
    deadline = time.monotonic() + timeout_seconds
    # librdkafka's group listing waits its whole time for a dead address; this first question tells sooner, and why.
    cluster = admin.client.describe_cluster(request_timeout=min(timeout_seconds, CONNECT_SECONDS))
    admin.answer(cluster, f"describing group {group_id}")

    def look() -> list[Any]:
        groups = _list(admin, group_id, deadline)
        if not _is_listed(groups) and _is_gone(admin, group_id, deadline):
            known = _of_connect(_list(admin, None, deadline))
            raise _no_such_group(admin.settings, group_id, tuple(sorted(group.id for group in known)))
        return groups

    groups = ask_again(admin, look, _is_unsettled, deadline)
    error = groups[0].error if groups else None
    if _is_unsettled(groups):
        why = f": {error.str()}" if error is not None else ""
        raise UnreachableError(f"The coordinator of group {group_id} is not available{why}.")
    if error is not None:
        raise explain(error, f"describing group {group_id}", admin.settings)
    if groups[0].protocol_type != PROTOCOL_TYPE:
        raise ConfigurationError(
            f"The group {group_id} is no Connect group, its protocol type is {groups[0].protocol_type or 'unknown'!r}.",
            expected=f"protocol type {PROTOCOL_TYPE!r}",
            remedy="Set group_id to the workers' group.id.",
        )
    return worker_group(groups[0])


def _is_listed(groups: list[Any]) -> bool:
    return bool(groups) and (groups[0].state != "Dead" or bool(groups[0].members))


def _is_unsettled(groups: list[Any]) -> bool:
    return not _is_listed(groups) or moves(groups[0].error)


def _is_gone(admin: QuietAdmin, group_id: str, deadline: float) -> bool:
    """Whether the group's coordinator says that there is no such group.

    A listing asks every broker and takes what they answer: while the coordinator moves, none of them has the group.

    :raises ConfigurationError: the principal may not describe the group.
    """
    seconds = max(1.0, deadline - time.monotonic())
    try:
        found = admin.client.describe_consumer_groups([group_id], request_timeout=seconds)[group_id].result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise admin.explain(error, f"describing group {group_id}") from error
        # It is there: librdkafka takes consumers' groups only, and says so of a group of workers.
        return bool(code == KafkaError.GROUP_ID_NOT_FOUND)
    return found.state is ConsumerGroupState.DEAD and not found.members


def connect_groups(kafka: Kafka, timeout_seconds: float = 10.0) -> tuple[str, ...]:
    """Names of all Connect groups that the Kafka cluster knows, sorted.

    :raises UnreachableError: no broker answers.
    """
    with session_of(kafka) as session, session.admin() as admin:
        return tuple(sorted(group.id for group in _of_connect(_list(admin, None, time.monotonic() + timeout_seconds))))


def other_groups(kafka: Kafka, group_id: str, timeout_seconds: float = 10.0) -> tuple[WorkerGroup, ...]:
    """All Connect groups that the Kafka cluster knows but this one, with their members; those that may be described.

    :raises UnreachableError: no broker answers.
    """
    with session_of(kafka) as session, session.admin() as admin:
        listed = _of_connect(_list(admin, None, time.monotonic() + timeout_seconds))
    return tuple(worker_group(group) for group in listed if group.id != group_id and group.error is None)


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """The groups of a Kafka cluster, of whatever kind.

    :param types: by group its protocol type: ``connect``, ``consumer``; empty while it has no members.
    :param connect: those that are Connect's.
    """

    types: Mapping[str, str]
    connect: tuple[KnownGroup, ...]


def listed_groups(kafka: Kafka, timeout_seconds: float = 10.0) -> ListedGroups:
    """The groups that the Kafka cluster knows; Connect's that may not be described by name alone.

    :raises UnreachableError: no broker answers.
    """
    with session_of(kafka) as session, session.admin() as admin:
        listed = sorted(_list(admin, None, time.monotonic() + timeout_seconds), key=lambda each: str(each.id))
    return ListedGroups(
        {group.id: group.protocol_type for group in listed},
        tuple(
            KnownGroup(group.id) if group.error is not None else known_group(worker_group(group))
            for group in _of_connect(listed)
        ),
    )


def other_known_groups(kafka: Kafka, group_id: str, timeout_seconds: float = 10.0) -> tuple[KnownGroup, ...]:
    """The Connect groups that the Kafka cluster knows but this one. Errors as in :func:`listed_groups`."""
    return tuple(each for each in listed_groups(kafka, timeout_seconds).connect if each.group_id != group_id)


def known_group(group: WorkerGroup) -> KnownGroup:
    """A group with the connectors that its members were given; not known where the group does not tell."""
    given = [a for m in group.members for a in (m.allocation, m.assignment) if a is not None]
    if not given or any(member.problem for member in group.members):
        return KnownGroup(group.group_id)
    names = {name for each in given for name in each.connectors}
    return KnownGroup(group.group_id, frozenset(names | {name for each in given for name, _ in each.tasks}))


def _of_connect(groups: Iterable[Any]) -> list[Any]:
    return [group for group in groups if group.protocol_type == PROTOCOL_TYPE]


def worker_group(described: Any) -> WorkerGroup:
    """Decode a group as confluent-kafka lists it; members' bytes that are not Connect's become their problem."""
    members = [
        _member(described.protocol, m.id, m.client_id, m.client_host, m.metadata or b"", m.assignment or b"")
        for m in described.members
    ]
    return WorkerGroup(
        group_id=described.id,
        state=described.state,
        protocol=described.protocol,
        protocol_type=described.protocol_type,
        members=tuple(sorted(members, key=lambda member: (member.worker_id, member.member_id))),
    )


def _member(
    protocol: str, member_id: str, client_id: str, client_host: str, metadata: bytes, assignment: bytes
) -> Member:
    problem = None
    said = assigned = None
    try:
        said = decode_metadata(protocol, metadata)
        assigned = decode_assignment(protocol, assignment)
    except UndecodableError as error:
        problem = str(error)
    return Member(
        member_id=member_id,
        client_id=client_id,
        client_host=client_host,
        url=said.url if said else "",
        worker_id=worker_id_of(said.url) if said else member_id,
        config_offset=said.config_offset if said else -1,
        allocation=said.allocation if said else None,
        assignment=assigned,
        problem=problem,
    )


def _list(admin: QuietAdmin, group_id: str | None, deadline: float) -> list[Any]:
    what = f"describing group {group_id}" if group_id else "listing groups"

    def ask() -> list[Any] | KafkaException:
        left = max(1.0, deadline - time.monotonic())
        try:
            return list(admin.client.list_groups(group_id, timeout=left))
        except KafkaException as error:
            return error

    listed = ask_again(admin, ask, moves, deadline)
    if isinstance(listed, list):
        return listed
    if moves(listed):
        raise UnreachableError(
            f"The Kafka cluster at {admin.settings.bootstrap_servers} does not list its groups ({what}): "
            f"{listed.args[0].str()}.",
            remedy="A broker reads its groups after each start. Try again; if it stays so, read the brokers' logs.",
        )
    raise admin.explain(listed, what) from listed


def _no_such_group(settings: KafkaSettings, group_id: str, known: tuple[str, ...]) -> ConfigurationError:
    return ConfigurationError(
        f"There is no group {group_id} on the Kafka cluster at {settings.bootstrap_servers}. Connect groups there: "
        f"{', '.join(known) or 'none'}.",
        remedy="Set group_id to the workers' group.id; a group is gone soon after its last worker has stopped.",
    )
