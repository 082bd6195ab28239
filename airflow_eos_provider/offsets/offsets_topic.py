"""One offsets topic, read whole: the newest record of each key, its writer, and the records of open transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.topics.source_offsets import ByConnector, OffsetLog, OffsetRecord
from airflow_eos_provider.kafka.admin.partition_writers import Outcome, Progress, Written
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.writers import TopicWriters, part_of, read_writers
from airflow_eos_provider.kafka.write.partitioner import partition_of

#: A read is given up when no position has moved for so long, seconds.
STALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """An offsets topic up to the ends that it had."""

    name: str  #: of the topic; in another Kafka cluster than the workers', of its store
    id: str | None  #: its topic id; None if the brokers did not tell
    ends: Mapping[int, int]  #: by partition the offset after the last record or marker
    committed: ByConnector = field(repr=False)  #: the newest committed records, removals included
    #: The newest records of open transactions, which count once these are committed.
    waiting: ByConnector = field(repr=False)
    _writers: TopicWriters = field(repr=False)
    #: The newest records of aborted ones that no committed one has followed; compaction removes them.
    aborted: ByConnector = field(default_factory=dict, repr=False)

    def written(self, record: OffsetRecord) -> Written:
        """Who wrote a record of it, and how its transaction ended."""
        return self._writers.at(record.kafka_partition, record.position)


def has_strayed(record: OffsetRecord, topic: OffsetsTopic) -> bool:
    """Whether a record of a topic stands in another partition than the hash of its key says."""
    return record.kafka_partition != partition_of(record.key.raw, len(topic.ends))


def read_offsets_topic(
    kafka: Kafka, topic: str, *, name: str = "", headers: bool = False, progress: Progress | None = None
) -> OffsetsTopic:
    """Read an offsets topic to its end. An open transaction is seen, and does not delay the read.

    The topic is read twice: the headers of its batches for who wrote what, then its records.
    """
    with session_of(kafka) as session:
        writers = read_writers(session, topic, part_of(progress, 0, 2))

        def outcome(record: LogRecord) -> Outcome:
            written = writers.of(record)
            return written.outcome if written else Outcome.ABORTED  # what came after the ends counts as little

        log = OffsetLog(name or topic, outcome)
        scan_to_end(
            session,
            topic,
            log.take,
            writers.reach,
            isolation="read_uncommitted",
            timeout_seconds=STALL_SECONDS,
            stall_only=True,
            headers=headers,
            progress=part_of(progress, 1, 2),
        )
    topic_id = writers.id
    return OffsetsTopic(name or topic, topic_id, writers.end, log.committed(), log.open(), writers, log.aborted())
