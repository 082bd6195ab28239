"""Follows the control topic: each read goes on where the one before ended.

What is replayed in parts is what would be replayed from the beginning: the log only grows, and compaction takes away
nothing but records that a later one of their key replaces. A tombstone goes, too, a day later; so whoever has not read
for long reads from the beginning, where a run that is gone is not found. So does who finds a topic that was made anew.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_eos_provider.interval.protocol.control_topic import ControlState
from airflow_eos_provider.interval.protocol.stage import Report, silent
from airflow_eos_provider.interval.protocol.topic_reader import Take, TopicReader
from airflow_eos_provider.kafka.ends import ReplacedTopicError
from airflow_eos_provider.kafka.follow import FOLLOWED_SECONDS
from airflow_eos_provider.kafka.read import Elapsed
from airflow_eos_provider.kafka.session import Kafka


class ControlReader:
    """The control topic as one actor has read it so far.

    :param kafka: a session with the pipeline's cluster, whose clients are used.
    :param topic: the control topic.
    :param start: offset to begin at; what is said before is not known then.
    :param report: receives a line when something is waited for.
    """

    def __init__(self, kafka: Kafka, topic: str, start: int = 0, *, report: Report = silent) -> None:
        self._kafka = kafka
        self._topic = topic
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
        try:
            read(self._reader, self._state.apply)
        except ReplacedTopicError:
            self._from(0)
            read(self._reader, self._state.apply)
        self._since_read = began
        return self._state

    def _from(self, start: int) -> None:
        self._reader = TopicReader(self._kafka, self._topic, {0: start} if start else None, report=self._report)
        self._state = ControlState(self._topic)
