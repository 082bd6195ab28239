"""What the internal topics hold: live records, records that compaction has yet to remove, their owners and writers.

A worker that starts reads the whole config topic before it joins its group, so a topic that is far larger than its live
records makes starts slow. Some kinds are never removed by Connect (``task-``, ``commit-``, ``tasks-fencing-``): they
outlive their connector.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from airflow_eos_provider.connect.topics.config_topic import SESSION_KEY, UNKNOWN, ClusterState, ConfigReplay, kind_of
from airflow_eos_provider.connect.transactional_ids import leader_id
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.admin.partition_writers import Progress
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.writers import part_of, read_writers

#: The read is given up when no position has moved for so long, seconds.
STALL_SECONDS = 30.0

#: Records that only the leader writes, in a transaction while it is ``preparing`` or ``enabled``; the others come from
#: any worker, by a plain producer.
LEADERS_KINDS = frozenset({"connector", "task", "commit", "tasks-fencing", SESSION_KEY})


@dataclass(slots=True)
class KindCount:
    """The records of one kind.

    :param live: records that are the newest of their key, and no removals.
    :param dead: all others: compaction will take them.
    """

    live: int = 0
    dead: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0

    def add(self, other: KindCount) -> None:
        self.live += other.live
        self.dead += other.dead
        self.live_bytes += other.live_bytes
        self.dead_bytes += other.dead_bytes


@dataclass(frozen=True, slots=True)
class Census:
    """What a config topic holds.

    :param commits: by connector how many task sets (generations) are still in the log.
    :param leftovers: by connector that does not exist the kinds of its records.
    :param writers: by producer id the number of records; None for plain producers.
    :param foreign: records of kinds that only the leader writes, written in a transaction by another producer than
        the leader's.
    """

    kinds: Mapping[str, KindCount]
    state: ClusterState
    commits: Mapping[str, int]
    leftovers: Mapping[str, tuple[str, ...]]
    writers: Mapping[int | None, int]
    foreign: int = 0

    @property
    def total(self) -> KindCount:
        """All kinds together."""
        found = KindCount()
        for kind in self.kinds.values():
            found.add(kind)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON, without configurations. Scripts rely on the names."""
        total = self.total
        return {
            "records": total.live + total.dead,
            "live": total.live,
            "dead": total.dead,
            "live_bytes": total.live_bytes,
            "dead_bytes": total.dead_bytes,
            "end_offset": self.state.end_offset,
            "kinds": {name: asdict(kind) for name, kind in sorted(self.kinds.items())},
            "connectors": {
                name: {
                    "target_state": connector.target_state,
                    "tasks": connector.task_count,
                    "generations": self.commits.get(name, 0),
                    "task_count_record": connector.task_count_record,
                    "pending_fencing": connector.pending_fencing,
                    "inconsistent": connector.inconsistent,
                }
                for name, connector in self.state.connectors.items()
            },
            "leftovers": {name: list(kinds) for name, kinds in self.leftovers.items()},
            "writers": [{"producer_id": writer, "records": count} for writer, count in self.writers.items()],
            "foreign": self.foreign,
            "unknown": list(self.state.unknown),
            "malformed": list(self.state.malformed),
            "marker_gaps": len(self.state.marker_gaps),
        }


@dataclass(slots=True)
class _Newest:
    """The newest record of a key."""

    kind: str
    name: str
    bytes: int = 0
    removed: bool = False


class CensusTaker:
    """Counts a config topic, record by record.

    :param producer_of: who wrote a record; None for a plain producer.
    :param leaders: producer ids that the group's leaders have had, None if they are not known.
    """

    def __init__(
        self,
        producer_of: Callable[[LogRecord], int | None] = lambda record: None,
        leaders: frozenset[int] | None = None,
    ) -> None:
        self._producer_of = producer_of
        self._leaders = leaders
        self._replay = ConfigReplay()
        self._kinds: dict[str, KindCount] = {}
        self._newest: dict[bytes | None, _Newest] = {}
        self._commits: Counter[str] = Counter()
        self._writers: Counter[int | None] = Counter()
        self._foreign = 0

    def take(self, records: Iterable[LogRecord]) -> None:
        """Go on with further records, in the order of the log."""
        for record in records:
            self._count(record)
            if record.key != SESSION_KEY.encode():  # signs requests between workers: not read, not kept
                self._replay.take_one(record)

    def census(self, end_offset: int) -> Census:
        """What all records so far come to."""
        state = self._replay.content(end_offset)
        kinds = {name: KindCount(0, count.dead, 0, count.dead_bytes) for name, count in self._kinds.items()}
        leftovers: dict[str, set[str]] = {}
        for newest in self._newest.values():
            kind = kinds[newest.kind]
            if newest.removed:
                kind.dead += 1
                kind.dead_bytes += newest.bytes
                continue
            kind.live += 1
            kind.live_bytes += newest.bytes
            if (
                newest.name
                and newest.name not in state.connectors
                and newest.kind not in ("restart-connector", UNKNOWN)
            ):
                leftovers.setdefault(newest.name, set()).add(newest.kind)
        return Census(
            kinds=kinds,
            state=state,
            commits=dict(self._commits),
            leftovers={name: tuple(sorted(kinds_of)) for name, kinds_of in sorted(leftovers.items())},
            writers=dict(self._writers.most_common()),
            foreign=self._foreign,
        )

    def _count(self, record: LogRecord) -> None:
        newest = self._newest.get(record.key)
        if newest is None:
            newest = self._newest[record.key] = _Newest(*_owner_of(record.key))
            self._kinds.setdefault(newest.kind, KindCount())
        else:
            count = self._kinds[newest.kind]
            count.dead += 1
            count.dead_bytes += newest.bytes
        newest.bytes = len(record.key or b"") + len(record.value or b"")
        newest.removed = record.value is None
        if newest.kind == "commit":
            self._commits[newest.name] += 1
        writer = self._producer_of(record)
        self._writers[writer] += 1
        if self._leaders is not None and writer is not None and writer not in self._leaders:
            self._foreign += newest.kind in LEADERS_KINDS


def _owner_of(key: bytes | None) -> tuple[str, str]:
    """A record's kind, and the connector it is about; empty for kinds that are about none."""
    kind, rest = kind_of(key)
    if kind in (UNKNOWN, "logger-cluster"):
        return kind, ""
    return kind, rest.rpartition("-")[0] if kind == "task" else rest


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
    """Read a config topic three times: its batches for the writers, its records to count them, and for the time."""
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
        scan(on_records=lambda _: None, progress=part_of(progress, 2, 3))
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
    """Read a compacted topic once, and count."""
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
