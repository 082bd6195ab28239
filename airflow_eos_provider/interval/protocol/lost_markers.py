"""Finds partitions without the markers of a run's transactions, which brokers may leave out.

A broker that decides a transaction takes a partition without a leader for one that was deleted, and says that the
transaction has ended though no marker is there (KAFKA-20734, seen with Kafka 4.3.1). When the partition comes back,
its readers stop before records that were committed and never become visible. No client can put the marker in, so all
that can be done is to see it before ``complete`` says otherwise.
"""

from __future__ import annotations

from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.admin.transactions import ActiveProducer, TransactionsClient
from airflow_eos_provider.kafka.session import Kafka
from airflow_eos_provider.kafka.topics import Topics


def lost_markers(
    client: TransactionsClient, pipeline: Pipeline, run: Run, topic: str, kafka: Kafka | None = None
) -> tuple[ActiveProducer, ...]:
    """Where a transaction of a run's tasks is open in a partition of a target topic.

    After the tasks' ids are fenced no such transaction is open for their coordinators, so each that a partition still
    holds open has lost its marker; or a newer driver has begun.

    :param topic: the pipeline's, or one that rows have named.
    :param kafka: a session with the pipeline's cluster, whose client is used.
    :raises UnreachableError: a partition's leader did not answer.
    """
    prefix = pipeline.task_id_prefix(run)
    ours = {one.producer_id for one in client.list(prefix) if task_number(one.transactional_id, prefix) is not None}
    described = Topics(kafka or pipeline.kafka).describe([topic]).get(topic)
    producers = client.active_producers(topic, range(described.partitions if described else 0))
    return tuple(p for p in producers if p.transaction_start_offset is not None and p.producer_id in ours)


def lost_marker_error(run: Run, topic: str, lost: tuple[ActiveProducer, ...]) -> EosError:
    """The error that names them."""
    first = lost[0]
    more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    return EosError(
        f"{run}: records are committed, but the brokers left out the marker in partition {first.partition} of {topic} "
        f"(producer {first.producer_id}, from offset {first.transaction_start_offset}{more}), since it had no leader "
        "then (KAFKA-20734). Readers of committed records do not pass it, so the interval is not complete.",
        expected="no open transaction of this run in any partition",
        remedy=f"'eos transactions abort --topic {topic} --partition {first.partition} --start-offset "
        f"{first.transaction_start_offset}' frees the readers and gives these records up for good; then write the "
        "interval anew as revision 2 into a topic where its other records are not yet.",
    )
