"""The worker group as the broker sees it: members, leader, config offsets, rebalance delay and placement.

Only the broker knows who is in the group: Connect's REST API has no call for it. From protocol ``compatible`` on, an
assignment holds only what the last rebalance changed, so placement is put together from both payloads of a member.
These are from ``ConnectProtocol`` and ``IncrementalCooperativeConnectProtocol``; integers are big-endian, STRING has a
16-bit length, BYTES and ARRAY a 32-bit one, -1 for null::

    metadata    version:16 url:STRING config-offset:64 [allocation:NULLABLE BYTES, an assignment, from version 1]
    assignment  version:16 error:16 leader:STRING leader-url:STRING config-offset:64 assignment:ARRAY
                [revoked:NULLABLE ARRAY delay:32, from version 1]
    element of both arrays: connector:STRING tasks:ARRAY of 32, where -1 is the connector itself

Version 0 is ``eager`` (named "default" on the wire), 1 ``compatible``, 2 ``sessioned``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka.errors import CoordinatorLoadInProgressError

from airflow_eos_provider.connect.cluster.description import worker_id_of
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin import groups
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.groups import Group, describe_groups, list_groups
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of

PROTOCOL_TYPE = "connect"

EAGER = "default"

#: By their version.
PROTOCOLS = (EAGER, "compatible", "sessioned")


class UndecodableError(EosError):
    """Bytes of a group member are not what Connect writes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader assigned to a member, or (as allocation) what the member said it already had.

    :param error: 0, or 1 when the leader lagged behind in the config topic (``CONFIG_MISMATCH``).
    :param leader: member id of the leader.
    :param connectors: names; under ``compatible`` and ``sessioned`` only those added by the last rebalance.
    :param tasks: connector and number, likewise.
    :param delay_ms: how long, at the moment of the last rebalance, lost tasks were still to be held back. It is a
        photograph, not a clock.
    """

    error: int
    leader: str
    leader_url: str
    config_offset: int
    connectors: frozenset[str] = frozenset()
    tasks: frozenset[tuple[str, int]] = frozenset()
    revoked_connectors: frozenset[str] = frozenset()
    revoked_tasks: frozenset[tuple[str, int]] = frozenset()
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a worker says of itself when it joins.

    :param config_offset: the offset after the last config record that it had read.
    :param allocation: what it ran at that moment; None if nothing, and always None in protocol "default".
    """

    url: str
    config_offset: int
    allocation: Assignment | None = None


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
    :param is_described: False where the coordinator refuses to describe it, or is moving.
    """

    group_id: str
    state: str
    protocol: str
    protocol_type: str = PROTOCOL_TYPE
    members: tuple[Member, ...] = ()
    is_described: bool = True

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
    with session_of(kafka) as session, session.admin() as admin:
        what = f"describing group {group_id}"
        found = describe_groups(admin, [group_id], timeout_seconds)[group_id]
        if isinstance(found, Exception):
            raise _unlisted(admin, found, what)
        if not found.is_there:
            known = [name for name, kind in _types(admin, timeout_seconds).items() if kind == PROTOCOL_TYPE]
            raise ConfigurationError(
                f"There is no group {group_id} on the Kafka cluster at {admin.settings.bootstrap_servers}. Connect "
                f"groups there: {', '.join(known) or 'none'}.",
                remedy="Set group_id to the workers' group.id; a group is gone soon after its last worker has stopped.",
            )
    if found.protocol_type != PROTOCOL_TYPE:
        raise ConfigurationError(
            f"The group {group_id} is no Connect group, its protocol type is {found.protocol_type or 'unknown'!r}.",
            expected=f"protocol type {PROTOCOL_TYPE!r}",
            remedy="Set group_id to the workers' group.id.",
        )
    return worker_group(found)


def listed_groups(kafka: Kafka, timeout_seconds: float = 10.0) -> tuple[WorkerGroup, ...]:
    """All groups that the Kafka cluster knows; with members those of Connect that may be described."""
    with session_of(kafka) as session, session.admin() as admin:
        types = _types(admin, timeout_seconds)
        connect = [name for name, kind in types.items() if kind == PROTOCOL_TYPE]
        described = describe_groups(admin, connect, timeout_seconds)
    found = {name: worker_group(group) for name, group in described.items() if isinstance(group, Group)}
    return tuple(found.get(name) or WorkerGroup(name, "", "", kind, is_described=False) for name, kind in types.items())


def other_groups(kafka: Kafka, group_id: str, timeout_seconds: float = 10.0) -> tuple[WorkerGroup, ...]:
    """All Connect groups that the Kafka cluster knows but this one."""
    listed = listed_groups(kafka, timeout_seconds)
    return tuple(each for each in listed if each.protocol_type == PROTOCOL_TYPE and each.group_id != group_id)


def known_group(group: WorkerGroup) -> KnownGroup:
    """A group with the connectors that its members were given; not known where the group does not tell."""
    given = [a for m in group.members for a in (m.allocation, m.assignment) if a is not None]
    if not given or any(member.problem for member in group.members):
        return KnownGroup(group.group_id)
    names = {name for each in given for name in each.connectors}
    return KnownGroup(group.group_id, frozenset(names | {name for each in given for name, _ in each.tasks}))


def _types(admin: Admin, seconds: float) -> dict[str, str]:
    """By group its protocol type, in the order of their names."""
    listed = list_groups(admin, seconds)
    if listed.errors:
        raise _unlisted(admin, listed.errors[0], "listing groups")
    return dict(sorted(listed.types.items()))


def worker_group(described: Group) -> WorkerGroup:
    """Decode a group; members' bytes that are not Connect's become their problem."""
    members = [_member(described.protocol, member) for member in described.members]
    return WorkerGroup(
        group_id=described.id,
        state=described.state,
        protocol=described.protocol,
        protocol_type=described.protocol_type,
        members=tuple(sorted(members, key=lambda member: (member.worker_id, member.member_id))),
    )


def _member(protocol: str, described: groups.Member) -> Member:
    problem = None
    said = assigned = None
    try:
        said = decode_metadata(protocol, described.metadata)
        assigned = decode_assignment(protocol, described.assignment)
    except UndecodableError as error:
        problem = str(error)
    return Member(
        member_id=described.id,
        client_id=described.client_id,
        client_host=described.host,
        url=said.url if said else "",
        worker_id=worker_id_of(said.url) if said else described.id,
        config_offset=said.config_offset if said else -1,
        allocation=said.allocation if said else None,
        assignment=assigned,
        problem=problem,
    )


def _unlisted(admin: Admin, error: Exception, what: str) -> EosError:
    if isinstance(error, CoordinatorLoadInProgressError):
        return UnreachableError(
            f"The Kafka cluster at {admin.settings.bootstrap_servers} does not list its groups ({what}): {error}.",
            remedy="A broker reads its groups after each start. Try again; if it stays so, read the brokers' logs.",
        )
    return admin.explain(error, what)


def decode_metadata(protocol: str, data: bytes) -> Metadata | None:
    """What a member said when it joined; None for empty bytes, which the broker gives while the group rebalances."""
    if not data:
        return None
    reader = _Reader(data, "metadata")
    version = reader.version(protocol)
    url, config_offset = reader.text("url"), reader.number("config-offset", ">q")
    allocation = reader.nullable_bytes("allocation") if version >= 1 and reader.has_more else None
    return Metadata(url, config_offset, decode_assignment(protocol, allocation) if allocation else None)


def decode_assignment(protocol: str, data: bytes) -> Assignment | None:
    """What the leader assigned to a member; None for empty bytes, as in :func:`decode_metadata`."""
    if not data:
        return None
    reader = _Reader(data, "assignment")
    version = reader.version(protocol)
    error = reader.number("error", ">h")
    leader, leader_url = reader.text("leader"), reader.text("leader-url")
    config_offset = reader.number("config-offset", ">q")
    # Java lets the fields at the end of version 1 be absent (TOLERATE_MISSING_FIELDS_WITH_DEFAULTS).
    assigned = reader.connector_tasks("assignment") if reader.has_more or version == 0 else ()
    revoked = reader.connector_tasks("revoked") if version >= 1 and reader.has_more else ()
    delay_ms = reader.number("delay", ">i") if version >= 1 and reader.has_more else 0
    connectors, tasks = _split(assigned)
    revoked_connectors, revoked_tasks = _split(revoked)
    return Assignment(
        error, leader, leader_url, config_offset, connectors, tasks, revoked_connectors, revoked_tasks, delay_ms
    )


#: The task number of the connector itself.
_CONNECTOR = -1

_Pairs = tuple[tuple[str, int], ...]


def _split(pairs: _Pairs) -> tuple[frozenset[str], frozenset[tuple[str, int]]]:
    return (
        frozenset(connector for connector, number in pairs if number == _CONNECTOR),
        frozenset(pair for pair in pairs if pair[1] != _CONNECTOR),
    )


class _Reader:
    """Reads one payload field by field; an error names the field and the byte where it begins."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def version(self, protocol: str) -> int:
        if protocol not in PROTOCOLS:
            raise UndecodableError(f"The protocol {protocol!r} is none of Connect's.", expected=", ".join(PROTOCOLS))
        version = self.number("version", ">h")
        if not 0 <= version < len(PROTOCOLS):
            raise UndecodableError(f"The {self._what} has version {version}.", expected="0, 1 or 2")
        return version

    def number(self, name: str, form: str) -> int:
        (value,) = struct.unpack(form, self._take(name, struct.calcsize(form)))
        return int(value)

    def text(self, name: str) -> str:
        begin = self._at
        try:
            return self._take(name, self.number(name, ">h")).decode("utf-8")
        except UnicodeDecodeError:
            raise UndecodableError(f"The {self._what}'s {name} at byte {begin} is not UTF-8.") from None

    def nullable_bytes(self, name: str) -> bytes:
        length = self.number(name, ">i")
        return b"" if length == -1 else self._take(name, length)

    def connector_tasks(self, name: str) -> _Pairs:
        pairs: list[tuple[str, int]] = []
        for _ in range(self.number(name, ">i")):  # -1, null, is none
            connector = self.text(f"{name}.connector")
            count = self.number(f"{name}.tasks", ">i")
            pairs.extend((connector, self.number(f"{name}.tasks", ">i")) for _ in range(count))
        return tuple(pairs)

    def _take(self, name: str, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise UndecodableError(
                f"The {self._what} ends within {name}: {length} bytes at byte {self._at} of {len(self._data)}."
            )
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken
