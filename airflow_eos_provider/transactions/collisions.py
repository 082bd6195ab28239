"""Collisions on a Kafka cluster: ids, topics and groups that two Connect clusters or interval pipelines share.

The transactional ids of two groups coincide if one's name continues after a hyphen: ``a`` with a connector ``b-c`` has
the ids of ``a-b`` with ``c``, so each fences the other's tasks. Two groups on one internal topic run each connector
twice, and write over each other's offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations, permutations

from airflow_eos_provider.connect.properties import sink_group
from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.transactional_ids import KnownGroup, claims, leader_id, task_number
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.transactions.readers import sink_groups

#: The protocol type of a group of Connect workers.
_CONNECT = "connect"

#: What an interval pipeline's ids and its control topic end with.
PLANNER = "-planner"
CONTROL = "-configs"


class CollisionKind(StrEnum):
    IDS = "transactional ids"
    TOPIC = "internal topic"
    GROUP = "group id"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Collision:
    """One thing that two share.

    :param is_harmful: whether it does harm as it is; else it is worth knowing before the next connector is made.
    """

    kind: CollisionKind
    subject: str
    what: str
    remedy: str
    is_harmful: bool = True


@dataclass(frozen=True, slots=True)
class PipelineSeen:
    """A pipeline of interval runs.

    :param is_certain: False if its id may also be split elsewhere.
    """

    group_id: str
    name: str
    is_certain: bool = True

    @property
    def prefix(self) -> str:
        return f"{self.group_id}-{self.name}"

    def __str__(self) -> str:
        return f"{'' if self.is_certain else 'perhaps '}the interval pipeline {self.name} of group {self.group_id}"


@dataclass(frozen=True, slots=True)
class KafkaGroups:
    """Who is on one Kafka cluster.

    :param connect: Connect groups, with their connectors and internal topics as far as they are known.
    :param types: by group its protocol type, of all groups.
    :param writers: by topic the transactional ids that write to it.
    :param states: by group its config topic, where that was read.
    """

    connect: tuple[KnownGroup, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    pipelines: tuple[PipelineSeen, ...] = ()
    writers: Mapping[str, Collection[str]] = field(default_factory=dict)
    states: Mapping[str, ClusterState] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def find_collisions(found: KafkaGroups) -> tuple[Collision, ...]:
    """Everything that two share, what does harm first."""
    collisions = [
        *_task_ids(found),
        *_fixed_ids(found),
        *_pipelines(found),
        *_topics(found),
        *_group_ids(found),
        *_prefixes(found),
    ]
    return tuple(sorted(collisions, key=lambda each: not each.is_harmful))


def not_known(found: KafkaGroups) -> tuple[str, ...]:
    """Pairs of groups of which it is not known whether they collide, with what could not be seen at all."""
    unclear = (
        f"whether ids of the groups {one.group_id} and {other.group_id} coincide: the connectors of "
        f"{one.group_id if one.connectors is None else other.group_id} are unknown"
        for one, other in _reaching(found)
        if None in (one.connectors, other.connectors) and (one.connectors is None or _names_below(one, other))
    )
    return (*found.unknown, *unclear)


def _reaching(found: KafkaGroups) -> Iterator[tuple[KnownGroup, KnownGroup]]:
    """Pairs of groups of which the first's ids may look like the second's."""
    for one, other in permutations(found.connect, 2):
        if other.group_id.startswith(f"{one.group_id}-"):
            yield one, other


def _names_below(one: KnownGroup, other: KnownGroup) -> bool:
    """Whether a connector's name goes on as the other group's does."""
    rest = other.group_id.removeprefix(f"{one.group_id}-")
    return any(name.startswith(f"{rest}-") for name in one.connectors or ())


def _task_ids(found: KafkaGroups) -> Iterator[Collision]:
    by_prefix: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for group in found.connect:
        for name in sorted(group.connectors or ()):
            by_prefix[f"{group.group_id}-{name}"].append((group.group_id, name))
    for prefix, owners in by_prefix.items():
        if len(owners) > 1:
            who = " and ".join(f"connector {name} of group {group}" for group, name in owners)
            yield Collision(
                CollisionKind.IDS,
                f"{prefix}-<task>",
                f"{who} have the same transactional ids, {prefix}-<task>: as source connectors, their tasks fence each "
                "other, and none of them delivers exactly once",
                "recreate one of them under another name, and copy its offsets with 'eos offsets restore --from'",
            )


def _fixed_ids(found: KafkaGroups) -> Iterator[Collision]:
    """Ids of leaders and journals that look like a task's."""
    by_prefix: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for other in found.connect:
        for fixed, whose in ((leader_id(other.group_id), "the leader"), (journal_topic(other.group_id), "eos")):
            by_prefix[f"{fixed.rpartition('-')[0]}-"].append((fixed, whose, other.group_id))
    for one in found.connect:
        for name in sorted(one.connectors or ()):
            prefix = f"{one.group_id}-{name}-"
            for fixed, whose, theirs in by_prefix.get(prefix, ()):
                number = task_number(fixed, prefix)
                if number is not None and theirs != one.group_id:
                    yield Collision(
                        CollisionKind.IDS,
                        fixed,
                        f"task {number} of connector {name} of group {one.group_id} has the transactional id {fixed}, "
                        f"which is that of {whose} for group {theirs}: they fence each other",
                        f"recreate {name} under another name",
                    )


def _pipelines(found: KafkaGroups) -> Iterator[Collision]:
    for one, other in combinations(found.pipelines, 2):
        if one.prefix == other.prefix and one.group_id != other.group_id:
            yield Collision(
                CollisionKind.IDS,
                f"{one.prefix}@…",
                f"{one} and {other} have the same transactional ids, {one.prefix}@…: their runs of one interval fence "
                "each other",
                "if there are both, give one of the pipelines another name or group_id",
                is_harmful=one.is_certain and other.is_certain,
            )
    for pipeline in found.pipelines:
        for group in found.connect:
            for name in sorted(group.connectors or ()):
                if f"{group.group_id}-{name}".startswith(f"{pipeline.prefix}@"):
                    yield Collision(
                        CollisionKind.IDS,
                        f"{group.group_id}-{name}-<task>",
                        f"connector {name} of group {group.group_id} and {pipeline} have transactional ids of one form",
                        "recreate the connector under a name without '@'",
                    )


def _topics(found: KafkaGroups) -> Iterator[Collision]:
    users: defaultdict[str, set[str]] = defaultdict(set)
    for group in found.connect:
        for topic in group.topics:
            users[topic].add(group.group_id)
    internal = frozenset(users)
    for topic, ids in found.writers.items():
        for one in ids:
            theirs = {group.group_id for group in claims(one, found.connect)}
            is_leader = any(one == leader_id(group) for group in theirs)
            # An id that several claim does not tell who writes.
            if len(theirs) == 1 and (topic in internal or is_leader):
                users[topic] |= theirs
    for topic, groups in sorted(users.items()):
        if len(groups) > 1:
            names = " and ".join(sorted(groups))
            yield Collision(
                CollisionKind.TOPIC,
                topic,
                f"the Connect groups {names} use the topic {topic}: on one config topic both run every connector, on "
                "one offsets topic each can take the other's offsets for its own",
                "stop the workers of one, and give them config, offset and status topics of their own",
            )
    for pipeline in found.pipelines:
        topic = f"{pipeline.group_id}{CONTROL}"
        if topic in users and pipeline.is_certain:
            yield Collision(
                CollisionKind.TOPIC,
                topic,
                f"{pipeline} has its control topic in {topic}, which the Connect group "
                f"{' and '.join(sorted(users[topic]))} uses",
                "give the pipeline a group_id of its own",
            )


def _group_ids(found: KafkaGroups) -> Iterator[Collision]:
    for group in found.connect:
        kind = found.types.get(group.group_id, "")
        if kind not in ("", _CONNECT):
            yield Collision(
                CollisionKind.GROUP,
                group.group_id,
                f"the group id {group.group_id} is that of a Connect cluster, and of a group of type {kind!r} that is "
                "there now: the workers cannot join",
                "give the others another group id",
            )
        yield from _sinks(found, group.group_id)
        for pipeline in found.pipelines:
            if pipeline.group_id == group.group_id and pipeline.is_certain:
                yield Collision(
                    CollisionKind.GROUP,
                    group.group_id,
                    f"{pipeline} uses the group id of a Connect cluster",
                    "give the pipeline a group_id of its own",
                )


def _sinks(found: KafkaGroups, group_id: str) -> Iterator[Collision]:
    """Sink connectors that read with the group of a Connect cluster."""
    remedy = "recreate the connector under another name, or set its consumer.override.group.id"
    for other, state in sorted(found.states.items()):
        name = sink_groups(state).get(group_id)
        if name is not None:
            yield Collision(
                CollisionKind.GROUP,
                group_id,
                f"sink connector {name} of group {other} reads as group {group_id}, which is also the group.id of a "
                "Connect cluster: whichever comes second cannot join",
                remedy,
            )
    for group in found.connect:
        for name in sorted(group.connectors or ()):
            if group.group_id not in found.states and sink_group(name) == group_id:
                yield Collision(
                    CollisionKind.GROUP,
                    group_id,
                    f"if connector {name} of group {group.group_id} is a sink connector, it reads as group {group_id}, "
                    "which is also the group.id of a Connect cluster",
                    remedy,
                    is_harmful=False,
                )


def _prefixes(found: KafkaGroups) -> Iterator[Collision]:
    for one, other in _reaching(found):
        rest = other.group_id.removeprefix(f"{one.group_id}-")
        yield Collision(
            CollisionKind.PREFIX,
            f"{one.group_id}-",
            f"ids of group {other.group_id} begin with {one.group_id}-, like the ids of {one.group_id}: a prefixed "
            f"ACL for {one.group_id}- covers both",
            f"name no connector of {one.group_id} {rest}-…, for it would have ids of {other.group_id}",
            is_harmful=False,
        )
