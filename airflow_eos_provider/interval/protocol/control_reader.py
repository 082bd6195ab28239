"""Follows the control topic: each read goes on where the one before ended.

What is replayed in parts is what would be replayed from the beginning: the log only grows, and compaction takes away
nothing but records that a later one of their key replaces. A tombstone goes, too, a day later; so a reader that has not
read for long begins at the start of the topic, where a run that is gone is not found.

Offsets are generations, so they mean something in one topic only: a topic of the same name and another id is an error.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_eos_provider.interval.protocol.control_topic import ControlState
from airflow_eos_provider.interval.protocol.stage import Report, silent
from airflow_eos_provider.interval.protocol.topic_reader import Take, TopicReader
from airflow_eos_provider.kafka.read.follow import FOLLOWED_SECONDS
from airflow_eos_provider.kafka.read.reader import Elapsed
from airflow_eos_provider.kafka.session import Kafka


class ControlReader:
    """The control topic as one actor has read it so far.

    :param kafka: a session with the pipeline's cluster, whose clients are used.
    :param topic: the control topic.
    :param start: offset to begin at; what is said before is not known then.
    :param topic_id: the id that the topic must have; None for that of the first read.
    :param report: receives a line when something is waited for.
    """

    def __init__(
        self, kafka: Kafka, topic: str, start: int = 0, *, topic_id: str | None = None, report: Report = silent
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self.topic_id = topic_id
        self._report = report
        self._since_read = Elapsed()
        self._from(start)

    def read(self) -> ControlState:
        """All that is committed up to the uncommitted end of this moment; waits for open transactions before it.

        Errors as in :meth:`TopicReader.read`, and as :meth:`ControlState.apply` raises them.
        """
        return self._apply(lambda reader, take: reader.read(take))

    def read_stable(self) -> ControlState:
        """What is committed before the first open transaction. There may be more behind it."""
        return self._apply(lambda reader, take: reader.read_stable(take))

    def _apply(self, read: Callable[[TopicReader, Take], None]) -> ControlState:
        if self._since_read.seconds() > FOLLOWED_SECONDS:
            self._from(0)
        began = Elapsed()
        self._reader.topic_id = self.topic_id
        read(self._reader, self._state.apply)
        self.topic_id = self._reader.topic_id
        self._since_read = began
        return self._state

    def _from(self, start: int) -> None:
        self._reader = TopicReader(self._kafka, self._topic, {0: start} if start else None, report=self._report)
        self._state = ControlState(self._topic)
