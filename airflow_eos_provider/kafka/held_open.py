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
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import WriteTxnMarkersRequest

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
    """What the leaders said.

    :param held: in the order of topics, partitions and producers.
    :param unknown: partitions of which nothing is known, with the reason.
    """

    held: tuple[HeldOpen, ...]
    unknown: Mapping[Place, str]


async def held_open(admin: Any, places: Collection[Place]) -> HeldLook:
    """Ask the leaders of these partitions. One that cannot be asked ends nothing: it is unknown.

    A topic that is gone holds nothing open, and is left out.

    :param admin: kafka-python's admin client.
    :raises kafka.errors.KafkaError: a leader did not answer.
    """
    unknown: dict[Place, str] = {}
    by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, leader in (await _leaders(admin, places)).items():
        if leader is None or leader < 0:  # kafka-python would look for a broker of that number
            unknown[place] = "it has no leader"
        else:
            by_leader[leader][place[0]].append(place[1])
    pending = [
        admin._manager.send(
            DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=sorted(numbers))
                    for topic, numbers in of_leader.items()
                ]
            ),
            node_id=leader,
        )
        for leader, of_leader in by_leader.items()
    ]
    found: list[HeldOpen] = []
    for future in pending:
        for topic in (await future).topics:
            for answer in topic.partitions:
                error = kafka.errors.for_code(answer.error_code)
                if error is not kafka.errors.NoError:
                    unknown[topic.name, answer.partition_index] = _reason(error)
                found += [
                    HeldOpen(
                        topic=topic.name,
                        partition=answer.partition_index,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        coordinator_epoch=producer.coordinator_epoch,
                        start_offset=producer.current_txn_start_offset,
                        last_timestamp_ms=producer.last_timestamp,
                    )
                    for producer in answer.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
    return HeldLook(tuple(sorted(found)), dict(sorted(unknown.items())))


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
        if leaders:
            found.update({(topic["name"], number): leaders.get(number) for number in wanted[topic["name"]]})
    return found


def _reason(error: type[kafka.errors.KafkaError]) -> str:
    if error is kafka.errors.TopicAuthorizationFailedError:
        return "the principal may not read the topic"
    return f"its broker answers {error.__name__}"


async def write_abort_marker(admin: Any, held: HeldOpen) -> None:
    """Have the leader end a transaction in this partition as aborted, as a coordinator would (``WriteTxnMarkers``).

    :raises kafka.errors.KafkaError: the leader refused.
    """
    leader = (await _leaders(admin, [held.place])).get(held.place)
    if leader is None or leader < 0:
        raise kafka.errors.LeaderNotAvailableError(f"{held.topic}-{held.partition} has no leader")
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
    response = await admin._manager.send(request, node_id=leader)
    codes = [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
    if len(codes) != 1:
        raise kafka.errors.UnknownError(f"{len(codes)} answers to one marker")
    error = kafka.errors.for_code(codes[0])
    if error is not kafka.errors.NoError:
        raise error(f"{held.topic}-{held.partition}")


async def loaded_coordinators(admin: Any, transactional_ids: Collection[str]) -> dict[str, int] | None:
    """The brokers that coordinate these ids, each of which has loaded what it has to know of them.

    :param transactional_ids: that nobody uses.
    :returns: None if the principal may not describe one of them, or this client does not know one of the brokers.
    :raises kafka.errors.KafkaError: a coordinator is not there, loads, or did not answer.
    """
    nodes = await admin._find_coordinator_ids(transactional_ids, key_type=CoordinatorType.TRANSACTION)
    by_node: defaultdict[int, list[str]] = defaultdict(list)
    for transactional_id, node in nodes.items():
        by_node[node].append(transactional_id)
    if not by_node.keys() <= {broker.node_id for broker in admin._manager.cluster.brokers()}:
        return None
    pending = [
        admin._manager.send(DescribeTransactionsRequest(transactional_ids=ids), node_id=node)
        for node, ids in by_node.items()
    ]
    may_see = True
    for future in pending:
        for entry in (await future).transaction_states:
            error = kafka.errors.for_code(entry.error_code)
            if error is kafka.errors.TransactionalIdAuthorizationFailedError:
                may_see = False
            elif error is not kafka.errors.TransactionalIdNotFoundError:
                raise error(entry.transactional_id)
    return dict(nodes) if may_see else None


def one_id_for_each(partitions: int) -> list[str]:
    """Random transactional ids that nobody uses, one for each partition of ``__transaction_state``.

    An id belongs to the partition of its ``String.hashCode``, made positive (``TransactionStateManager.partitionFor``).
    They have no beginning in common, so that a right on a prefix does not cover them.
    """
    found: dict[int, str] = {}
    while len(found) < partitions:
        name = secrets.token_hex(12)
        found.setdefault((java_hash(name) & 0x7FFFFFFF) % partitions, name)
    return [found[partition] for partition in sorted(found)]


def java_hash(text: str) -> int:
    """``String.hashCode`` of a text of ASCII characters, as an unsigned number of 32 bits."""
    hashed = 0
    for character in text:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return hashed
