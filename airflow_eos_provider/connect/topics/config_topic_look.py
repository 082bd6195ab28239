"""Internal topics read whole, counted and timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from airflow_eos_provider.connect.topics.config_census import Census, CensusTaker
from airflow_eos_provider.connect.transactional_ids import leader_id
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.admin.partition_writers import Progress
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.writers import part_of, read_writers
from airflow_eos_provider.kafka.session import Kafka, session_of

#: The read is given up when no position has moved for so long, seconds.
STALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ConfigTopicLook:
    """What a config topic holds, and how long its read took.

    :param read_seconds: of one read of all committed records by this machine, without taking them apart. A worker that
        starts does the same before it joins its group.
    """

    topic: str
    census: Census
    read_seconds: float


def look_at_config_topic(kafka: Kafka, topic: str, group_id: str, progress: Progress | None = None) -> ConfigTopicLook:
    """Read a config topic three times: its batches for the writers, its records to count them, and against the clock.

    :param kafka: settings or session of its cluster.
    :param group_id: the workers' ``group.id``, by which the leader's transactional id is known.
    :param progress: called with offsets passed and offsets in all, of all three reads together.
    :raises ConfigurationError: there is no such topic, it has more than one partition, or it may not be read.
    :raises UnreachableError: no broker answers.
    :raises ReadTimeoutError: an open transaction holds the read back, or it did not go on.
    """
    with session_of(kafka) as session:
        writers = read_writers(session, topic, part_of(progress, 0, 3))
        if len(writers.end) != 1:
            raise ConfigurationError(
                f"The topic {topic} has {len(writers.end)} partitions.", expected="one, for a config topic"
            )
        leader = leader_id(group_id)
        with session.transactions() as client:
            known = client.describe([leader]).get(leader)

        def producer_of(record: LogRecord) -> int | None:
            written = writers.of(record)
            return written.producer_id if written else None

        taker = CensusTaker(producer_of, None if known is None else frozenset({known.producer_id}))
        scan = partial(scan_to_end, session, topic, reach=writers.reach, timeout_seconds=STALL_SECONDS, stall_only=True)
        last = scan(on_records=taker.take, progress=part_of(progress, 1, 3))
        started = time.monotonic()
        scan(on_records=_nothing, progress=part_of(progress, 2, 3))
        return ConfigTopicLook(topic, taker.census(last[0]), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records of a compacted topic a reader needs.

    :param live: records with the newest value of a key.
    :param dead: older records, and removals.
    """

    topic: str
    live: int
    dead: int


def counted_records(kafka: Kafka, topic: str, progress: Progress | None = None) -> Counts:
    """Read a compacted topic once, and count.

    :raises UnknownTopicError: there is no such topic.
    :raises UnreachableError: no broker answers.
    """
    newest: dict[bytes | None, bool] = {}
    read = 0

    def take(records: Sequence[LogRecord]) -> None:
        nonlocal read
        read += len(records)
        newest.update({record.key: record.value is not None for record in records})

    with session_of(kafka) as session:
        scan_to_end(session, topic, on_records=take, progress=progress, timeout_seconds=STALL_SECONDS, stall_only=True)
    live = sum(newest.values())
    return Counts(topic, live, read - live)


def _nothing(_: object) -> None:
    """Records that are only read."""
