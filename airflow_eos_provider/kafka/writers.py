"""Who wrote a topic's records, and how their transactions ended.

Consumers hand records over without their producers. Both stand in the headers of the record batches, which
:mod:`~airflow_eos_provider.kafka.batches` takes out of a fetch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from airflow_eos_provider.kafka.clients import CONNECT_SECONDS
from airflow_eos_provider.kafka.ends import Ends, Reach
from airflow_eos_provider.kafka.read import LogRecord
from airflow_eos_provider.kafka.session import Session

#: Called with offsets passed and offsets in all.
Progress = Callable[[int, int], None]


class Outcome(StrEnum):
    """What readers of committed records make of a record."""

    PLAIN = "plain"  # written outside of any transaction
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class Batch(NamedTuple):
    """One record batch's header.

    ``producer_id`` and ``producer_epoch`` are -1 for a plain producer. ``committed`` says of a marker how the
    transaction ended, and is None for records.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    committed: bool | None = None


class Written(NamedTuple):
    """Who wrote a record, and how its transaction ended. ``producer_id`` is None for a plain producer."""

    producer_id: int | None
    producer_epoch: int | None
    outcome: Outcome

    @property
    def is_committed(self) -> bool:
        """Whether readers of committed records get it."""
        return self.outcome in (Outcome.PLAIN, Outcome.COMMITTED)


_OUTCOMES = (Outcome.PLAIN, Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN)
_CODES = {outcome: code for code, outcome in enumerate(_OUTCOMES)}


class PartitionWriters:
    """The batches of one partition, taken in the order of the log. Some 20 bytes of memory a batch.

    Markers that compaction has taken are not missed: it takes one only when the records of its transaction are gone.
    """

    def __init__(self) -> None:
        self._bases = array("q")
        self._producers = array("q")
        self._epochs = array("h")
        self._codes = array("b")
        self._open: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, batch: Batch) -> None:
        """Go on with the next batch."""
        if batch.committed is not None:
            ended = _CODES[Outcome.COMMITTED if batch.committed else Outcome.ABORTED]
            for index in self._open.pop(batch.producer_id, ()):
                self._codes[index] = ended
            return
        if batch.transactional:
            self._open[batch.producer_id].append(len(self._bases))
        self._bases.append(batch.base_offset)
        self._producers.append(batch.producer_id)
        self._epochs.append(batch.producer_epoch)
        self._codes.append(_CODES[Outcome.OPEN if batch.transactional else Outcome.PLAIN])

    def at(self, offset: int) -> Written:
        """Who wrote the record at an offset.

        :raises KeyError: no batch was taken that could hold it.
        """
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            raise KeyError(offset)
        producer_id = self._producers[index]
        outcome = _OUTCOMES[self._codes[index]]
        return Written(None, None, outcome) if producer_id < 0 else Written(producer_id, self._epochs[index], outcome)


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
    """Read the headers of a topic's batches to its end. An open transaction is seen, and does not delay the read.

    :raises UnknownTopicError: there is no such topic.
    :raises ConfigurationError: the principal may not read it.
    :raises UnreachableError: no broker answers.
    :raises ReadTimeoutError: a partition gave nothing more before its end.
    """
    with session.admin() as admin:
        ends = Ends(admin, topic, Reach(), CONNECT_SECONDS)
        begin, end = ends.beginnings(), ends.now()
    with session.transactions() as client:
        return TopicWriters(ends.topic_id, begin, end, client.writers(topic, begin, end, progress))


def part_of(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """The progress of one of several reads of a topic, as progress of all of them.

    :param number: which one it is, from 0.
    """
    return progress and (lambda passed, total: progress(number * total + passed, parts * total))
