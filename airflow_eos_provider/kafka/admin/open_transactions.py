"""Transactions that partitions hold open, as their leaders know them, and the marker that ends one (KIP-664).

A coordinator knows the transactions of its ids; a partition's leader knows which producers have a transaction open in
it, and where that begins. A transaction that a leader holds open and no coordinator knows is hanging.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import kafka.errors
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from airflow_eos_provider.kafka.admin.client import Admin, Place, error_in, metadata

#: A producer id that no coordinator gives out: they count from 0 on.
NO_PRODUCER = 2**63 - 1


class HeldOpen(NamedTuple):
    """One transaction that is open in one partition.

    ``start_offset`` is that of its first record there, ``last_timestamp_ms`` that of its producer's last record or
    marker in the partition, -1 if unknown; ``coordinator_epoch`` that of the last marker of this producer, -1 for none.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int

    @property
    def place(self) -> Place:
        """Where it is open."""
        return self.topic, self.partition


class HeldLook(NamedTuple):
    """What the leaders said."""

    held: tuple[HeldOpen, ...]
    unknown: Mapping[Place, str]


class WritingLook(NamedTuple):
    """What the leaders said of who writes.

    :param producers: by partition the producers that its leader remembers: idempotent or transactional ones, for a day
        after their last record by default.
    """

    producers: Mapping[Place, frozenset[int]]
    unknown: Mapping[Place, str]


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader remembers: idempotent or transactional, not plain.

    ``last_timestamp_ms`` is of its last record or marker, -1 if unknown; ``transaction_start_offset`` where its open
    transaction begins in this partition, None if none is open.
    """

    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


async def held_open(admin: Admin, places: Collection[Place], deadline: float) -> HeldLook:
    """Ask the leaders of these partitions. One that cannot be asked ends nothing: it is unknown.

    A topic that is gone holds nothing open, and is left out.
    """
    found, unknown = await _known_producers(admin, places, deadline)
    held = [
        HeldOpen(
            topic=topic,
            partition=partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            start_offset=producer.current_txn_start_offset,
            last_timestamp_ms=producer.last_timestamp,
        )
        for (topic, partition), producers in found.items()
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]
    return HeldLook(tuple(sorted(held)), unknown)


async def writing(admin: Admin, places: Collection[Place], deadline: float) -> WritingLook:
    """Ask the leaders of these partitions who writes there. As :func:`held_open`."""
    found, unknown = await _known_producers(admin, places, deadline)
    ids = {place: frozenset(int(one.producer_id) for one in producers) for place, producers in found.items()}
    return WritingLook(ids, unknown)


async def active_producers(
    admin: Admin, topic: str, partitions: Collection[int], deadline: float
) -> tuple[ActiveProducer, ...]:
    """Ask the leaders of these partitions, all of which have to answer."""
    found: list[ActiveProducer] = []
    answers = await _producers(admin, [(topic, partition) for partition in partitions], deadline)
    for (_, partition), producers in answers.items():
        if producers is None:
            raise kafka.errors.UnknownTopicOrPartitionError(f"{topic}-{partition}")
        if isinstance(producers, Exception):
            raise producers
        found += [
            ActiveProducer(
                partition=partition,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp_ms=one.last_timestamp,
                transaction_start_offset=None if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
            )
            for one in producers
        ]
    return tuple(sorted(found))


async def _known_producers(
    admin: Admin, places: Collection[Place], deadline: float
) -> tuple[dict[Place, Collection[Any]], dict[Place, str]]:
    """By partition the producers that its leader remembers; and partitions of which nothing is known, with why."""
    found: dict[Place, Collection[Any]] = {}
    unknown: dict[Place, str] = {}
    for place, producers in sorted((await _producers(admin, places, deadline)).items()):
        if isinstance(producers, Exception):
            unknown[place] = _reason(producers)
        elif producers is not None:
            found[place] = producers
    return found, unknown


async def _producers(
    admin: Admin, places: Collection[Place], deadline: float
) -> dict[Place, Collection[Any] | kafka.errors.KafkaError | None]:
    """By partition the producers that its leader remembers, or why it cannot be asked; None where the topic is gone."""
    found: dict[Place, Collection[Any] | kafka.errors.KafkaError | None] = dict.fromkeys(places)
    by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition), leader in (await _leaders(admin, places, deadline)).items():
        if isinstance(leader, Exception):
            found[topic, partition] = leader
        else:
            by_leader[leader][topic].append(partition)
    wanted = DescribeProducersRequest.TopicRequest
    requests = [
        (
            DescribeProducersRequest(
                topics=[wanted(name=topic, partition_indexes=sorted(numbers)) for topic, numbers in led.items()]
            ),
            leader,
        )
        for leader, led in by_leader.items()
    ]
    for answer in await admin.answers(requests, deadline):
        for topic in answer.topics:
            for each in topic.partitions:
                place = topic.name, each.partition_index
                found[place] = error_in(each, f"{place[0]}-{place[1]}") or each.active_producers
    return found


async def _leaders(
    admin: Admin, places: Collection[Place], deadline: float
) -> dict[Place, int | kafka.errors.KafkaError]:
    """The leaders of partitions, or why there is none. Topics that are gone are left out."""
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        wanted[topic].append(partition)
    found: dict[Place, int | kafka.errors.KafkaError] = {}
    if not wanted:
        return found
    answer = await admin.wire.answer(metadata(wanted), admin.wire.any_broker(), deadline)
    for topic in answer.topics:
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        if not leaders and topic.error_code == kafka.errors.UnknownTopicOrPartitionError.errno:
            continue
        for number in wanted[topic.name]:
            name = f"{topic.name}-{number}"
            if leaders.get(number, -1) >= 0:
                found[topic.name, number] = leaders[number]
            elif number in leaders:
                found[topic.name, number] = kafka.errors.LeaderNotAvailableError(f"{name} has no leader")
            else:  # nothing is known of its partitions, such as where its description is denied
                found[topic.name, number] = error_in(topic, name) or kafka.errors.UnknownTopicOrPartitionError(name)
    return found


def _reason(error: kafka.errors.KafkaError) -> str:
    if isinstance(error, kafka.errors.LeaderNotAvailableError):
        return "it has no leader"
    if isinstance(error, kafka.errors.TopicAuthorizationFailedError):
        return "the principal may not read the topic"
    return f"its broker answers {type(error).__name__}"


async def write_abort_marker(admin: Admin, held: HeldOpen, deadline: float) -> None:
    """Have the leader end a transaction in this partition as aborted, as a coordinator would (``WriteTxnMarkers``)."""
    where = f"{held.topic}-{held.partition}"
    leader = (await _leaders(admin, [held.place], deadline)).get(
        held.place, kafka.errors.UnknownTopicOrPartitionError(where)
    )
    if isinstance(leader, Exception):
        raise leader
    error = await _marked(admin, held, leader, deadline)
    if error is not kafka.errors.NoError:
        raise error(where)


async def may_write_marker(admin: Admin, deadline: float) -> bool:
    """Whether the principal may end a transaction. It is tried in a topic that does not exist, so nothing is written:
    a broker looks at the rights before it looks for the partition (``KafkaApis.handleWriteTxnMarkersRequest``).
    """
    nowhere = HeldOpen(secrets.token_hex(12), 0, NO_PRODUCER, 0, -1, 0, -1)
    error = await _marked(admin, nowhere, admin.wire.any_broker(), deadline)
    return error is not kafka.errors.ClusterAuthorizationFailedError


async def _marked(admin: Admin, held: HeldOpen, broker: int, deadline: float) -> type[kafka.errors.KafkaError]:
    """What a broker answers to the marker of an abort."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=held.topic, partition_indexes=[held.partition])
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=held.producer_id,
                producer_epoch=held.producer_epoch,
                transaction_result=False,  # an abort
                topics=[topic],
                coordinator_epoch=max(held.coordinator_epoch, 0),  # Java's tool sends 0 for none
            )
        ]
    )
    answer = await admin.wire.answer(request, broker, deadline)
    codes = [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]
    if len(codes) != 1:
        raise kafka.errors.UnknownError(f"{len(codes)} answers to one marker")
    return kafka.errors.for_code(codes[0])  # type: ignore[no-any-return]
