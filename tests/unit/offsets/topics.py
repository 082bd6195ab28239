"""Offsets topics as they are after a read, made from their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_eos_provider.connect.topics.source_offsets import OffsetLog
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic


def topic_of(
    name: str,
    records: Iterable[LogRecord],
    partitions: int = 1,
    outcome: Callable[[LogRecord], Outcome] = lambda record: Outcome.COMMITTED,
) -> OffsetsTopic:
    """An offsets topic; nobody has looked who wrote its records."""
    log = OffsetLog(name, outcome)
    log.take(records)
    ends = dict.fromkeys(range(partitions), 100)
    writers = TopicWriters(None, {}, ends, {})
    return OffsetsTopic(name, f"{name}-id", ends, log.committed(), log.open(), writers, log.aborted())
