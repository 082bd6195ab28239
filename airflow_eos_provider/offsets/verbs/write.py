"""Records written into offsets topics as a connector's task writes them: in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_eos_provider.errors import FencedError, RefusedError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from airflow_eos_provider.offsets.stores import topic_of
from airflow_eos_provider.offsets.verbs.changes import Write

#: Longer than a transaction of a million records takes, milliseconds; the brokers allow 15 minutes by default.
TRANSACTION_TIMEOUT_MS = 300_000


def write_in_transaction(
    settings: KafkaSettings, transactional_id: str, writes: Sequence[Write], before_commit: Callable[[], None]
) -> None:
    """Write records, all or none.

    :param transactional_id: ``<group>-<connector>-0``, the id of the connector's first task: Connect fences it before
        any task starts, and a task takes it before it reads offsets (``ExactlyOnceWorkerSourceTask``). So no task can
        begin between this write and its commit.
    """
    producer = TransactionalProducer(settings, transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS)
    try:
        producer.init()
        producer.begin()
        try:
            for write in writes:
                producer.produce(topic_of(write.topic), write.key, write.after, partition=write.kafka_partition)
            producer.flush()
            before_commit()
            producer.commit()
        except BaseException:
            producer.abort()
            raise
    except FencedError as error:
        raise RefusedError(
            f"Nothing was written: another producer took the transactional id {transactional_id}, so a task of the "
            "connector was started, or Connect fenced it, in the meantime.",
            remedy="Find out who started the connector; then give the same command again.",
        ) from error
