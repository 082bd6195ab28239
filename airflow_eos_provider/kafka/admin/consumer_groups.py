"""The consumer groups that the brokers know, their members and offsets, and what keeps a principal from seeing them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from airflow_eos_provider.kafka.admin.group_coordinators import answers_by_group, ask_again, moves
from airflow_eos_provider.kafka.admin.open_transactions import Place
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS

#: Limit of a request, seconds.
_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """What the brokers say of one consumer group.

    :param committed: by partition its position.
    :param assigned: partitions that its members have.
    """

    group_id: str
    committed: Mapping[Place, int] = field(default_factory=dict)
    assigned: frozenset[Place] = frozenset()
    clients: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def groups_seen(
    admin: QuietAdmin, places: Iterable[Place] | None = None, most: int | None = None
) -> tuple[list[GroupSeen], list[str]]:
    """The consumer groups with their positions and members, and what keeps them from being all.

    :param places: the partitions to ask for; None for all in which a group has committed any.
    :param most: so many groups are asked; None for all.
    """
    names, unknown = consumer_groups(admin)
    if most is not None and len(names) > most:
        unknown.append(f"there are {len(names)} consumer groups, {most} were checked")
        names = names[:most]
    offsets, described = committed_offsets(admin, names, places), described_groups(admin, names)
    found = []
    for name in names:
        error = next((each for each in (offsets[name], described[name]) if isinstance(each, KafkaException)), None)
        if error is not None:
            unknown.append(f"group {name}: {_reason(error.args[0])}")
            continue
        group, refused = _seen(name, offsets[name], described[name].members)
        found.append(group)
        if refused is not None:
            unknown.append(f"group {name}: {_reason(refused)}")
    return found, unknown


def _seen(name: str, offsets: Any, members: Iterable[Any]) -> tuple[GroupSeen, KafkaError | None]:
    """One group, and the error of a partition whose position its coordinator keeps back: of it nothing is said."""
    committed: dict[Place, int] = {}
    refused: dict[Place, KafkaError] = {}
    for tp in offsets.topic_partitions or ():
        if tp.error is not None:
            refused[tp.topic, tp.partition] = tp.error
        elif tp.offset >= 0:
            committed[tp.topic, tp.partition] = int(tp.offset)
    assigned = (tp for one in members if one.assignment for tp in one.assignment.topic_partitions)
    group = GroupSeen(
        name,
        committed,
        frozenset((tp.topic, tp.partition) for tp in assigned) - refused.keys(),
        clients=tuple(sorted(str(one.client_id) for one in members)),
        hosts=tuple(sorted({str(one.host).lstrip("/") for one in members})),
    )
    return group, next(iter(refused.values()), None)


def _reason(error: KafkaError) -> str:
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return "the principal may not describe it"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return "the principal may not describe a topic that it reads"
    return str(error.str())


def consumer_groups(admin: QuietAdmin) -> tuple[list[str], list[str]]:
    """Names of the groups, and what keeps them from being all.

    :raises EosError: no broker answers, or refuses these credentials.
    """
    hidden = hidden_groups(admin)

    def ask() -> Any:
        return admin.answer(admin.client.list_consumer_groups(request_timeout=_SECONDS), "listing consumer groups")

    listed = ask_again(admin, ask, lambda answer: any(map(moves, answer.errors or ())), time.monotonic() + _SECONDS)
    unknown = [*([hidden] if hidden else []), *(f"groups of a broker: {error}" for error in listed.errors or ())]
    return sorted(group.group_id for group in listed.valid or ()), unknown


def hidden_groups(admin: QuietAdmin) -> str:
    """Why there may be groups that are not listed; empty if there are none.

    Brokers leave out what a principal may not describe, and do not say so (``KafkaApis.handleListGroupsRequest``). So a
    group that nobody has is asked for. A rule that denies some groups alone cannot be noticed.

    :raises EosError: the brokers do not tell.
    """
    described = admin.client.describe_cluster(include_authorized_operations=True, request_timeout=CONNECT_SECONDS)
    allowed = admin.answer(described, "describing the cluster").authorized_operations
    if AclOperation.DESCRIBE in (allowed or ()):
        return ""
    nobody = secrets.token_hex(12)
    answer = described_groups(admin, [nobody])[nobody]
    if isinstance(answer, KafkaException):
        if answer.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            who = admin.settings.who
            return f"there may be groups that {who} may not see (Describe on every group, or on the cluster)"
        if answer.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise admin.explain(answer, "describing a group") from answer
    return ""


def described_groups(admin: QuietAdmin, names: Iterable[str]) -> dict[str, Any]:
    """By consumer group its description with its members, or the error of its coordinator."""
    return answers_by_group(
        admin, partial(admin.client.describe_consumer_groups, request_timeout=_SECONDS), names, _SECONDS
    )


def committed_offsets(admin: QuietAdmin, names: Iterable[str], places: Iterable[Place] | None = None) -> dict[str, Any]:
    """By consumer group the offsets that it has committed, or the error of its coordinator.

    :param places: the partitions to ask for; None for all in which it has committed any.
    """
    wanted = None if places is None else [TopicPartition(*place) for place in sorted(places)]

    def ask(names: list[str]) -> dict[str, Future[Any]]:
        asked = {}
        for name in names:  # a call takes one group
            request = [ConsumerGroupTopicPartitions(name, wanted)]
            asked.update(admin.client.list_consumer_group_offsets(request, request_timeout=_SECONDS))
        return asked

    return answers_by_group(admin, ask, names, _SECONDS)
