"""Writes records outside of any transaction."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import kafka.errors
from kafka.protocol.producer import InitProducerIdRequest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.admin.client import Admin, error_in
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.questions import not_allowed
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, Record, encode_records, seal
from airflow_eos_provider.kafka.write.sender import produce_request

#: Records of one batch, bytes, about; brokers take twice as much by default.
_BATCH_BYTES = 500_000

#: A broker waits so long for the other copies of a batch, milliseconds.
_ACKNOWLEDGE_MS = 10_000

#: A batch of a producer without an id is appended as often as it is sent.
_NO_PRODUCER = (-1, -1)


def write_plainly(
    cluster: Kafka,
    topic: str,
    records: Iterable[tuple[int, bytes, bytes | None]],
    what: str,
    *,
    seconds: float,
    once: bool = True,
) -> int:
    """Write records: partition, key and value. If one is refused, the batches before its own stay written.

    :param once: a retry must not append a record twice.
    :returns: the broker's time of the last batch, milliseconds since the epoch; this machine's, unless the topic has
        the broker's.
    """
    with session_of(cluster) as session, session.admin() as admin:

        async def producer(deadline: float) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
            )
            answer = await admin.wire.answer(request, admin.wire.any_broker(), deadline)
            if (error := error_in(answer)) is not None:
                raise error
            return answer.producer_id, answer.producer_epoch

        batches = _batches(topic, records, admin.ask(what, producer, seconds) if once else _NO_PRODUCER)
        appended_at_ms = 0

        async def append(deadline: float) -> int:
            nonlocal appended_at_ms
            while batches:
                appended_at_ms = await _append(admin, batches[0], deadline)
                del batches[0]  # what is asked again begins with the batch whose answer was lost
            return appended_at_ms

        try:
            return admin.ask(what, append, seconds)
        except ConfigurationError as error:
            if not isinstance(error.__cause__, kafka.errors.TopicAuthorizationFailedError):
                raise
            needed = (Operation.WRITE, Operation.DESCRIBE)
            raise not_allowed(session.settings, what, needed, Resource.TOPIC, topic) from error


def _batches(
    topic: str, records: Iterable[tuple[int, bytes, bytes | None]], producer: tuple[int, int]
) -> list[EncodedBatch]:
    now_ms = time.time_ns() // 1_000_000
    by_partition: defaultdict[int, list[list[Record]]] = defaultdict(lambda: [[]])
    sizes: defaultdict[int, int] = defaultdict(int)
    for partition, key, value in records:
        sizes[partition] += len(key) + len(value or b"")
        if sizes[partition] > _BATCH_BYTES and by_partition[partition][-1]:
            by_partition[partition].append([])
            sizes[partition] = len(key) + len(value or b"")
        by_partition[partition][-1].append((key, value, None, now_ms))
    found = []
    for partition, parts in by_partition.items():
        sequence = 0
        for part in parts:
            batch = encode_records(topic, partition, part, is_transactional=False)
            seal(batch, *producer, -1 if producer == _NO_PRODUCER else sequence)
            sequence += batch.count
            found.append(batch)
    return found


async def _append(admin: Admin, batch: EncodedBatch, deadline: float) -> int:
    """Send a batch to its partition's leader; returns when it was appended, milliseconds since the epoch."""
    where = f"{batch.topic}-{batch.partition}"
    if admin.wire.leader_of(batch.topic, batch.partition) is None:
        await admin.wire.refresh([batch.topic], deadline)
    leader = admin.wire.leader_of(batch.topic, batch.partition)
    if leader is None:
        raise kafka.errors.LeaderNotAvailableError(f"{where} has no leader")
    request = produce_request([batch], None, _ACKNOWLEDGE_MS)
    ((answer,),) = [each.partition_responses for each in (await admin.wire.answer(request, leader, deadline)).responses]
    error: Any = error_in(answer, where)
    if isinstance(error, kafka.errors.UnknownTopicOrPartitionError):  # it may have heard nothing of a new topic yet
        raise kafka.errors.LeaderNotAvailableError(where)
    if error is not None and not isinstance(error, kafka.errors.DuplicateSequenceNumberError):
        raise error
    return answer.log_append_time_ms if answer.log_append_time_ms >= 0 else time.time_ns() // 1_000_000
