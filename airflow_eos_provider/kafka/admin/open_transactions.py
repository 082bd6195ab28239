"""Transactions that partitions hold open, as their leaders know them, and the marker that ends one (KIP-664).

A coordinator knows the transactions of its ids; a partition's leader knows which producers have a transaction open in
it, and where that begins. A transaction that a leader holds open and no coordinator knows is hanging.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import kafka.errors
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

#: A producer id that no coordinator gives out: they count from 0 on.
NO_PRODUCER = 2**63 - 1

#: A topic's partition.
Place = tuple[str, int]


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


async def held_open(admin: Any, places: Collection[Place]) -> HeldLook:
    """Ask the leaders of these partitions. One that cannot be asked ends nothing: it is unknown.

    A topic that is gone holds nothing open, and is left out.
    """
    answers, unknown = await _ask(admin, places)
    found = [
        HeldOpen(
            topic=topic,
            partition=partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            start_offset=producer.current_txn_start_offset,
            last_timestamp_ms=producer.last_timestamp,
        )
        for (topic, partition), producers in answers.items()
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]
    return HeldLook(tuple(sorted(found)), unknown)


async def writing(admin: Any, places: Collection[Place]) -> WritingLook:
    """Ask the leaders of these partitions who writes there. As :func:`held_open`."""
    answers, unknown = await _ask(admin, places)
    found = {place: frozenset(int(one.producer_id) for one in producers) for place, producers in answers.items()}
    return WritingLook(found, unknown)


async def _ask(admin: Any, places: Collection[Place]) -> tuple[dict[Place, Collection[Any]], dict[Place, str]]:
    """By partition the producers that its leader remembers; and partitions of which nothing is known, with why."""
    unknown: dict[Place, str] = {}
    by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, leader in (await _leaders(admin, places)).items():
        if leader is None or leader < 0:  # kafka-python would look for a broker of that number
            unknown[place] = "it has no leader"
        else:
            by_leader[leader][place[0]].append(place[1])
    found: dict[Place, Collection[Any]] = {}
    for topic, answer in await producers_of(admin, by_leader):
        error = kafka.errors.for_code(answer.error_code)
        if error is kafka.errors.NoError:
            found[topic, answer.partition_index] = answer.active_producers
        else:
            unknown[topic, answer.partition_index] = _reason(error)
    return found, dict(sorted(unknown.items()))


async def producers_of(admin: Any, by_leader: Mapping[int, Mapping[str, Collection[int]]]) -> list[tuple[str, Any]]:
    """Ask leaders which producers they remember.

    :returns: topics, each with the answer about one partition, which has an error code of its own.
    """
    pending = [
        admin._manager.send(
            DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=sorted(numbers))
                    for topic, numbers in led.items()
                ]
            ),
            node_id=leader,
        )
        for leader, led in by_leader.items()
    ]
    return [
        (topic.name, answer) for future in pending for topic in (await future).topics for answer in topic.partitions
    ]


async def _leaders(admin: Any, places: Iterable[Place]) -> dict[Place, int | None]:
    """The leaders of partitions; None of one that its topic does not have. Topics that are gone are left out."""
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        wanted[topic].append(partition)
    found: dict[Place, int | None] = {}
    if not wanted:
        return found
    metadata = await admin._get_cluster_metadata(set(wanted))
    for topic in metadata.get("topics", ()):
        leaders = {each["partition_index"]: each["leader_id"] for each in topic.get("partitions", ())}
        if leaders or topic["error_code"] != kafka.errors.UnknownTopicOrPartitionError.errno:
            # With another error nothing is known of its partitions, such as where its description is denied.
            found.update({(topic["name"], number): leaders.get(number) for number in wanted[topic["name"]]})
    return found


def _reason(error: type[kafka.errors.KafkaError]) -> str:
    if error is kafka.errors.TopicAuthorizationFailedError:
        return "the principal may not read the topic"
    return f"its broker answers {error.__name__}"


async def write_abort_marker(admin: Any, held: HeldOpen) -> None:
    """Have the leader end a transaction in this partition as aborted, as a coordinator would (``WriteTxnMarkers``)."""
    leader = (await _leaders(admin, [held.place])).get(held.place)
    if leader is None or leader < 0:
        raise kafka.errors.LeaderNotAvailableError(f"{held.topic}-{held.partition} has no leader")
    error = await _marked(admin, held, leader)
    if error is not kafka.errors.NoError:
        raise error(f"{held.topic}-{held.partition}")


async def may_write_marker(admin: Any) -> bool:
    """Whether the principal may end a transaction. It is tried in a topic that does not exist, so nothing is written:
    a broker looks at the rights before it looks for the partition (``KafkaApis.handleWriteTxnMarkersRequest``).
    """
    nowhere = HeldOpen(secrets.token_hex(12), 0, NO_PRODUCER, 0, -1, 0, -1)
    broker = min(broker.node_id for broker in admin._manager.cluster.brokers())
    return await _marked(admin, nowhere, broker) is not kafka.errors.ClusterAuthorizationFailedError


async def _marked(admin: Any, held: HeldOpen, broker: int) -> type[kafka.errors.KafkaError]:
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
    response = await admin._manager.send(request, node_id=broker)
    codes = [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
    if len(codes) != 1:
        raise kafka.errors.UnknownError(f"{len(codes)} answers to one marker")
    return kafka.errors.for_code(codes[0])  # type: ignore[no-any-return]
