"""Finds all users of a Kafka cluster that could collide: Connect groups, interval pipelines, consumers, writers.

No protocol says which topics a group uses. A leader that is ``preparing`` or ``enabled`` writes the config topic by its
own id, at least once an hour (the key of the workers' requests), and the brokers remember that for a day: so its topic
is found, and with it the group's connectors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.group import PROTOCOL_TYPE, known_group, listed_groups
from airflow_eos_provider.connect.topics.config_topic import ClusterState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, STATUS, read_worker_files
from airflow_eos_provider.connect.transactional_ids import KnownGroup, leaders
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.kafka.admin.groups import hidden_groups
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.transactions.collisions import CONTROL, PLANNER, KafkaGroups, PipelineSeen

#: So many partitions that could not be seen are named.
_SHOWN = 3


def topics_of(cluster: ConnectCluster) -> frozenset[str]:
    """The internal topics that the workers' files name, as far as they can be read here."""
    files, found = read_worker_files(cluster), set()
    for name in (CONFIGS, OFFSETS, STATUS):
        try:
            found.add(files.common(name))
        except ConfigurationError:
            continue
    return frozenset(found)


def described_group(cluster: ConnectCluster, state: ClusterState | None = None) -> KnownGroup:
    """A group as its cluster file and its config topic have it."""
    connectors = None if state is None else frozenset({*state.connectors, *state.task_count_records})
    return KnownGroup(cluster.group_id, connectors, topics_of(cluster))


def look_at_groups(
    kafka: Session,
    topics: Mapping[str, int],
    described: Sequence[KnownGroup],
    states: Mapping[str, ClusterState],
) -> KafkaGroups:
    """Everybody on a Kafka cluster.

    The config topic of a group is read only where its workers do not tell its connectors: it takes rights, and time.

    :param described: groups of which more is known than the brokers tell, see :func:`described_group`.
    """
    listed = listed_groups(kafka)
    with kafka.admin() as admin:
        hidden = hidden_groups(admin)
    with kafka.transactions() as client:
        ids = {one.producer_id: one.transactional_id for one in client.list()}
        look = client.writing(_worth_asking(topics, described))
    known: dict[str, KnownGroup] = {}
    for each in (*(known_group(one) for one in listed if one.protocol_type == PROTOCOL_TYPE), *described):
        known[each.group_id] = known.get(each.group_id, each).with_more(each.connectors, each.topics)
    writers = _writers(look.producers, ids)
    read = dict(states)
    for group_id, leader in sorted(leaders(ids.values(), known.values()).items()):
        written = {topic for topic, theirs in writers.items() if leader in theirs}
        group = known.get(group_id, KnownGroup(group_id)).with_more(None, written)
        if group_id not in read and group.connectors is None and (state := _config_topic(kafka, group, topics)):
            read[group_id] = state
            group = group.with_more((*state.connectors, *state.task_count_records))
        known[group_id] = group
    return KafkaGroups(
        connect=tuple(group for _, group in sorted(known.items())),
        types={one.group_id: one.protocol_type for one in listed},
        pipelines=pipelines_of(ids.values(), topics, {name for one in known.values() for name in one.topics}),
        writers=writers,
        states=read,
        unknown=(*([hidden] if hidden else []), *_unseen(look.unknown)),
    )


def _config_topic(kafka: Session, group: KnownGroup, topics: Mapping[str, int]) -> ClusterState | None:
    """The config topic of a group. Where it cannot be read, its connectors are not known, which matters only if ids
    could coincide."""
    for topic in sorted(each for each in group.topics if topics.get(each) == 1):
        with suppress(EosError):
            return read_cluster_state(kafka, topic)
    return None


def _unseen(unknown: Mapping[Place, str]) -> Iterator[str]:
    if unknown:
        some = [f"{topic}-{number}: {why}" for (topic, number), why in list(unknown.items())[:_SHOWN]]
        more = " …" if len(unknown) > _SHOWN else ""
        yield f"who writes to {counted(len(unknown), 'partition')} ({', '.join(some)}{more})"


def _worth_asking(topics: Mapping[str, int], described: Sequence[KnownGroup]) -> list[Place]:
    """Partitions that may be of an internal topic: of those that are described, and of all with one partition."""
    named = {topic for group in described for topic in group.topics}
    wanted = {topic for topic, count in topics.items() if topic in named or (count == 1 and topic[:2] != "__")}
    return [(topic, number) for topic in sorted(wanted & topics.keys()) for number in range(topics[topic])]


def _writers(producers: Mapping[Place, frozenset[int]], ids: Mapping[int, str]) -> dict[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for (topic, _), theirs in producers.items():
        found[topic] |= {ids[producer] for producer in theirs if producer in ids}
    return {topic: frozenset(names) for topic, names in sorted(found.items()) if names}


def pipelines_of(
    ids: Iterable[str], topics: Collection[str], connects: Collection[str] = ()
) -> tuple[PipelineSeen, ...]:
    """The interval pipelines whose plans were admitted within the last days, by their planners' ids.

    Where such an id is split into group and pipeline stands in the group's control topic, if that has its usual name.

    :param connects: of those the internal ones of Connect groups: a control topic only if no other fits.
    """
    found = []
    for one in sorted(ids):
        if not one.endswith(PLANNER):
            continue
        parts = one.removesuffix(PLANNER).split("-")
        splits = [("-".join(parts[:at]), "-".join(parts[at:])) for at in range(1, len(parts))]
        fitting = [PipelineSeen(group, name) for group, name in splits if f"{group}{CONTROL}" in topics]
        if len(fitting) > 1:
            fitting = [each for each in fitting if f"{each.group_id}{CONTROL}" not in connects] or fitting
        if len(fitting) > 1:
            fitting = [replace(each, is_certain=False) for each in fitting]
        found += fitting
    return tuple(found)
