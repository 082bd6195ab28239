"""Where a topic begins and ends.

A topic may be so new that one broker has described it and the next does not know it yet. If a broker does not know a
partition, its offsets are requested again, as after a move of its leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.client import Admin, is_not_known
from airflow_eos_provider.kafka.questions import EARLIEST, LATEST


class UnknownTopicError(ConfigurationError):
    """There is no such topic."""


class ReplacedTopicError(EosError):
    """A topic is not the one that an earlier read knew: deleted and made anew, or it lost records."""


class DeletedRecordsError(ReplacedTopicError):
    """Records were deleted that a read needs."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which part of a topic is read.

    :param start: by partition the offset to begin at; partitions that are not named begin at their first record.
    :param partitions: the partitions to read, None for all.
    :param stable_only: stop where the first open transaction begins (the last stable offset) instead of waiting for
        it. What is committed behind it is missed, so nothing may be concluded from a record that is not seen.
    :param compaction_lag_seconds: the topic's ``min.compaction.lag.ms``, in seconds: a read that took longer asks for
        new ends and goes on. None for a topic that is not compacted, or where a missed record does no harm.
    :param topic_id: the topic's id when ``start`` was reached; another topic of this name is not read. None for any.
    :param all_records: refuse a topic of which records were deleted before the read was over. Compaction deletes none
        in this sense: it leaves the first offset of a partition where it is.
    """

    start: Mapping[int, int] = field(default_factory=dict)
    partitions: Collection[int] | None = None
    stable_only: bool = False
    compaction_lag_seconds: float | None = None
    topic_id: str | None = None
    all_records: bool = False


class Ends:
    """First and last offsets of the partitions that are to be read.

    :param limit: seconds in which a question must be answered.
    :ivar topic_id: the topic's id; None if it could not be asked for.
    """

    def __init__(self, admin: Admin, topic: str, reach: Reach, limit: float) -> None:
        self._admin = admin
        self._topic = topic
        self.topic_id: str | None = None
        self._reach = reach
        self._limit = limit
        known = self._known_partitions()
        if self.topic_id is not None and reach.topic_id not in (None, self.topic_id):
            raise ReplacedTopicError(
                f"The topic {topic} has another id ({self.topic_id}) than when it was read ({reach.topic_id}).",
                remedy="It was deleted and created again, so earlier reads of it are out of date.",
            )
        wanted = known if reach.partitions is None else set(reach.partitions)
        if unknown := sorted((wanted | set(reach.start)) - known):
            raise ConfigurationError(
                f"Topic {topic} has no partition {', '.join(map(str, unknown))}.", expected=f"0 to {len(known) - 1}"
            )
        self._partitions = sorted(wanted)

    def _known_partitions(self) -> set[int]:
        found = self._admin.topics([self._topic], self._limit).get(self._topic)
        if found is None:
            servers = self._admin.settings.bootstrap_servers
            raise UnknownTopicError(
                f"There is no topic {self._topic} on the Kafka cluster at {servers}.",
                remedy="Check the name and bootstrap_servers; a topic that one may not describe looks absent.",
            )
        self.topic_id = found.id or self.topic_id
        return set(found.leaders)

    @property
    def _first_offsets(self) -> str:
        return f"listing the first offsets of {self._topic}"

    def beginnings(self) -> dict[int, int]:
        """Where to begin. A retention run afterwards can move a partition's first offset on, never back."""
        start = self._reach.start
        open_ones = [partition for partition in self._partitions if partition not in start]
        first = self._offsets(open_ones, EARLIEST, self._first_offsets) if open_ones else {}
        return {partition: start.get(partition, first.get(partition, 0)) for partition in self._partitions}

    def require_all_records(self) -> None:
        """Check, after a read, that retention or a DeleteRecords request has taken none of its records.

        :raises DeletedRecordsError: a partition begins behind the read's start, or behind 0 where it has none.
        """
        if not self._reach.all_records:
            return
        for partition, first in self._offsets(self._partitions, EARLIEST, self._first_offsets).items():
            if first > (start := self._reach.start.get(partition, 0)):
                raise DeletedRecordsError(
                    f"Records of topic {self._topic} were deleted: partition {partition} begins at offset {first}.",
                    expected=f"offset {start} or before; compaction does not move it, but retention (a cleanup.policy "
                    "that was changed for a time) and DeleteRecords requests do",
                )

    def now(self) -> dict[int, int]:
        """The ends of this moment."""
        committed = self._reach.stable_only
        what = f"listing the end offsets of {self._topic}"
        ends = self._offsets(self._partitions, LATEST, what, committed=committed)
        if committed:  # a start that an earlier read reached may stand behind a transaction open now
            ends = {partition: max(end, self._reach.start.get(partition, 0)) for partition, end in ends.items()}
        return ends

    def at(self, moment_ms: int) -> dict[int, int | None]:
        """By partition the offset of the first record of this time or later, of whatever transaction; None if there is
        none.

        :param moment_ms: milliseconds since the epoch.
        """
        found = self._offsets(self._partitions, moment_ms, f"looking up a time in {self._topic}")
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def _offsets(self, partitions: Collection[int], at: int, what: str, *, committed: bool = False) -> dict[int, int]:
        places = [(self._topic, partition) for partition in partitions]
        found: dict[int, int] = {}
        for (_, partition), answer in self._admin.offsets(places, at, self._limit, what, committed=committed).items():
            if not isinstance(answer, Exception):
                found[partition] = answer
            elif is_not_known(answer):
                raise self._not_known(what) from answer
            else:
                raise self._admin.explain(answer, what) from answer
        return found

    def _not_known(self, what: str) -> EosError:
        self._known_partitions()  # raises where the topic is gone
        return UnreachableError(
            f"Not every broker of the Kafka cluster at {self._admin.settings.bootstrap_servers} knows topic "
            f"{self._topic} after {self._limit:.0f} s ({what}).",
            remedy="Check the brokers and the cluster's controller, and try again.",
        )
