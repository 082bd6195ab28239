"""Who wrote a topic's records, and how their transactions ended.

Consumers hand records over without their producers; the headers of the record batches have them, see
:mod:`~airflow_eos_provider.kafka.admin.partition_writers`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.kafka.admin.partition_writers import Batch, PartitionWriters, Progress, Written
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_batches
from airflow_eos_provider.kafka.read.topic_ends import Reach

#: Limit of a stall of the read, seconds.
_STALL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class TopicWriters:
    """The writers of a topic's records, up to the ends that it had.

    :param id: the topic's id; None if the brokers did not tell.
    :param begin: by partition its first offset.
    :param end: by partition the offset after the last record or marker.
    """

    id: str | None
    begin: Mapping[int, int]
    end: Mapping[int, int]
    _partitions: Mapping[int, PartitionWriters] = field(repr=False)

    @property
    def reach(self) -> Reach:
        """The same topic from the same beginning, for a read of its records."""
        return Reach(start=self.begin, topic_id=self.id)

    def of(self, record: LogRecord) -> Written | None:
        """Who wrote a record; None of one that came after the ends."""
        if record.offset >= self.end[record.partition]:
            return None
        return self.at(record.partition, record.offset)

    def at(self, partition: int, offset: int) -> Written:
        """Who wrote the record at an offset before the ends."""
        return self._partitions[partition].at(offset)


def read_writers(session: Session, topic: str, progress: Progress | None = None) -> TopicWriters:
    """Read the headers of a topic's batches to its end. An open transaction is seen, and does not delay the read."""
    writers: defaultdict[int, PartitionWriters] = defaultdict(PartitionWriters)

    def take(batches: Iterable[Batch]) -> None:
        for batch in batches:
            writers[batch.partition].take(batch)

    read = scan_batches(session, topic, take, timeout_seconds=_STALL_SECONDS, progress=progress)
    return TopicWriters(read.topic_id, read.beginning_offsets, read.end_offsets, writers)


def part_of(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """The progress of one of several reads of a topic, as progress of all of them."""
    return progress and (lambda passed, total: progress(number * total + passed, parts * total))
