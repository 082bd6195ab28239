"""The groups that the brokers know, their members and offsets, and what keeps a principal from seeing them.

A broker that has just become the coordinator of some groups reads their partitions of ``__consumer_offsets``. Until it
has, it answers ``COORDINATOR_LOAD_IN_PROGRESS`` to a question about one of these groups and to any listing
(``GroupCoordinatorService``): for a moment after each broker's start. So it is asked again.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import kafka.errors
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import CoordinatorType

from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.kafka.acl_values import Operation
from airflow_eos_provider.kafka.admin.client import Admin, Place, error_in
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS

T = TypeVar("T")

#: Limit of a question, seconds.
_SECONDS = 15.0

#: The state of a group that does not exist.
_NO_GROUP = "Dead"


class Member(NamedTuple):
    """One member of a group, with the bytes that its clients' protocol gives a meaning."""

    id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    id: str
    state: str
    protocol: str
    protocol_type: str
    members: tuple[Member, ...]

    @property
    def is_there(self) -> bool:
        """Whether there is such a group."""
        return self.state != _NO_GROUP or bool(self.members)

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions that the members of a consumer group have."""
        assignments = [ConsumerProtocolAssignment.decode(each.assignment) for each in self.members if each.assignment]
        return frozenset(
            (topic, int(partition))
            for each in assignments
            for topic, partitions in each.assigned_partitions
            for partition in partitions
        )


class ListedGroups(NamedTuple):
    """The groups of all brokers.

    :param types: by group its protocol type: ``connect``, ``consumer``; empty while it has no members.
    """

    types: Mapping[str, str]
    errors: tuple[kafka.errors.KafkaError, ...]


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """What the brokers say of one consumer group."""

    group_id: str
    committed: Mapping[Place, int] = field(default_factory=dict)
    assigned: frozenset[Place] = frozenset()
    clients: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Committed(NamedTuple):
    """A consumer group's offsets by partition, and the errors of partitions that its coordinator refuses."""

    offsets: Mapping[Place, int]
    refused: Mapping[Place, kafka.errors.KafkaError]


def groups_seen(
    admin: Admin, places: Iterable[Place] | None = None, most: int | None = None
) -> tuple[list[GroupSeen], list[str]]:
    """The consumer groups with their positions and members, and the reasons why some may be missing.

    :param places: the partitions to ask for; None for all in which a group has committed any.
    :param most: so many groups are asked; None for all.
    """
    names, unknown = consumer_groups(admin)
    if most is not None and len(names) > most:
        unknown.append(f"there are {len(names)} consumer groups, {most} were checked")
        names = names[:most]
    offsets, described = committed_offsets(admin, names, places), describe_groups(admin, names)
    found = []
    for name in names:
        committed, group = offsets[name], described[name]
        if isinstance(committed, Committed) and isinstance(group, Group):
            found.append(
                GroupSeen(
                    name,
                    committed.offsets,
                    group.assigned - committed.refused.keys(),
                    clients=tuple(sorted(member.client_id for member in group.members)),
                    hosts=tuple(sorted({member.host.lstrip("/") for member in group.members})),
                )
            )
            unknown += [f"group {name}: {_reason(error)}" for error in list(committed.refused.values())[:1]]
            if not group.is_there:  # kafka-python has no ConsumerGroupDescribe
                unknown.append(f"group {name}: its members are not known (the newer consumer protocol, KIP-848)")
        else:
            unknown.append(f"group {name}: {_reason(group if isinstance(committed, Committed) else committed)}")
    return found, unknown


def _reason(error: object) -> str:
    if isinstance(error, kafka.errors.GroupAuthorizationFailedError):
        return "the principal may not describe it"
    if isinstance(error, kafka.errors.TopicAuthorizationFailedError):
        return "the principal may not describe a topic that it reads"
    return str(error)


def list_groups(admin: Admin, seconds: float = _SECONDS) -> ListedGroups:
    """The groups that the principal may describe."""
    return admin.run("listing groups", _list, admin, seconds)


def consumer_groups(admin: Admin) -> tuple[list[str], list[str]]:
    """The groups with consumers or only offsets, and the reasons why some may be missing."""
    hidden = hidden_groups(admin)
    listed = list_groups(admin)
    unknown = [*([hidden] if hidden else []), *(f"groups of a broker: {error}" for error in listed.errors)]
    return sorted(name for name, kind in listed.types.items() if kind in ("consumer", "")), unknown


def hidden_groups(admin: Admin) -> str:
    """Why there may be groups that are not listed; empty if there are none.

    Brokers leave out what a principal may not describe, and do not say so (``KafkaApis.handleListGroupsRequest``). So a
    group that nobody has is asked for. A rule that denies some groups alone cannot be noticed.
    """
    if Operation.DESCRIBE in admin.cluster(CONNECT_SECONDS).operations:
        return ""
    nobody = secrets.token_hex(12)
    answer = describe_groups(admin, [nobody])[nobody]
    if isinstance(answer, kafka.errors.GroupAuthorizationFailedError):
        return f"there may be groups that {admin.settings.who} may not see (Describe on every group, or on the cluster)"
    if isinstance(answer, Exception):
        raise admin.explain(answer, "describing a group") from answer
    return ""


def describe_groups(
    admin: Admin, names: Iterable[str], seconds: float = _SECONDS
) -> dict[str, Group | kafka.errors.KafkaError]:
    """By group its description, or the error of its coordinator."""

    def request(names: Collection[str]) -> Any:
        return DescribeGroupsRequest(groups=list(names), include_authorized_operations=False)

    def read(answer: Any) -> dict[str, Group | kafka.errors.KafkaError]:
        return {group.group_id: _group(group) for group in answer.groups}

    asked = list(names)
    return admin.run(f"describing group {first_few(asked)}", _ask, admin, asked, request, read, seconds)


def committed_offsets(
    admin: Admin, names: Iterable[str], places: Iterable[Place] | None = None
) -> dict[str, Committed | kafka.errors.KafkaError]:
    """By consumer group the offsets that it has committed, or the error of its coordinator.

    :param places: the partitions to ask for; None for all in which it has committed any.
    """
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup
    by_topic = defaultdict(list)
    for topic, partition in sorted(places or ()):
        by_topic[topic].append(partition)
    topics = [
        wanted.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers) for topic, numbers in by_topic.items()
    ]

    def request(names: Collection[str]) -> Any:
        groups = [wanted(group_id=name, topics=None if places is None else topics) for name in names]
        return OffsetFetchRequest(groups=groups, require_stable=False, min_version=8, max_version=9)  # 10 has ids

    def read(answer: Any) -> dict[str, Committed | kafka.errors.KafkaError]:
        return {group.group_id: _committed(group) for group in answer.groups}

    return admin.run("reading committed offsets", _ask, admin, list(names), request, read, _SECONDS)


def _group(answer: Any) -> Group | kafka.errors.KafkaError:
    error = kafka.errors.for_code(answer.error_code)
    if error is kafka.errors.GroupIdNotFoundError:
        return Group(answer.group_id, _NO_GROUP, "", "", ())
    if error is not kafka.errors.NoError:
        return error(answer.group_id)
    members = tuple(
        Member(m.member_id, m.client_id, m.client_host, bytes(m.member_metadata or b""), bytes(m.member_assignment))
        for m in answer.members
    )
    return Group(answer.group_id, answer.group_state, answer.protocol_data, answer.protocol_type, members)


def _committed(group: Any) -> Committed | kafka.errors.KafkaError:
    if group.error_code:
        return kafka.errors.for_code(group.error_code)(group.group_id)
    offsets, refused = {}, {}
    for topic in group.topics:
        for each in topic.partitions:
            if each.error_code:
                refused[topic.name, each.partition_index] = kafka.errors.for_code(each.error_code)(topic.name)
            elif each.committed_offset >= 0:
                offsets[topic.name, each.partition_index] = each.committed_offset
    return Committed(offsets, refused)


# On the connections' thread


async def _list(admin: Admin, seconds: float) -> ListedGroups:
    deadline = time.monotonic() + seconds
    await admin.connected(deadline)
    types: dict[str, str] = {}

    async def ask(brokers: list[int], deadline: float) -> dict[int, kafka.errors.KafkaError | None]:
        found: dict[int, kafka.errors.KafkaError | None] = {}
        requests = [(broker, ListGroupsRequest(min_version=0), broker) for broker in brokers]
        for broker, answer in await admin.gather(requests, deadline):
            found[broker] = answer if isinstance(answer, Exception) else error_in(answer)
            if not isinstance(answer, Exception):
                types.update((group.group_id, group.protocol_type) for group in answer.groups)
        return found

    settled = await admin.settled(await admin.brokers(deadline), ask, deadline)
    return ListedGroups(types, tuple(error for error in settled.values() if error is not None))


async def _ask(
    admin: Admin,
    names: Collection[str],
    request: Callable[[Collection[str]], Any],
    read: Callable[[Any], dict[str, T | kafka.errors.KafkaError]],
    seconds: float,
) -> dict[str, T | kafka.errors.KafkaError]:
    """By group what its coordinator answers."""
    deadline = time.monotonic() + seconds
    if names:
        await admin.connected(deadline)

    async def ask(left: list[str], deadline: float) -> dict[str, T | kafka.errors.KafkaError]:
        answers: dict[str, T | kafka.errors.KafkaError] = {}
        by_broker: dict[int, list[str]] = defaultdict(list)
        for name, broker in (await admin.wire.coordinators(left, CoordinatorType.GROUP, deadline)).items():
            if isinstance(broker, Exception):
                answers[name] = broker
            else:
                by_broker[broker].append(name)
        requests = [(theirs, request(theirs), broker) for broker, theirs in by_broker.items()]
        for theirs, answer in await admin.gather(requests, deadline):
            answers |= dict.fromkeys(theirs, answer) if isinstance(answer, Exception) else read(answer)
        return answers

    return await admin.settled(names, ask, deadline)
