"""The contents of a config topic: live records, records that compaction has yet to remove, their owners and writers.

A worker that starts reads the whole topic before it joins its group, so a topic that is far larger than its live
records makes starts slow. Some kinds are never removed by Connect (``task-``, ``commit-``, ``tasks-fencing-``): they
outlive their connector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.topics.config_topic import SESSION_KEY, ClusterState, ConfigReplay
from airflow_eos_provider.kafka.read.reader import LogRecord

#: Records that only the leader writes, in a transaction while it is ``preparing`` or ``enabled``; the others come from
#: any worker, by a plain producer.
LEADERS_KINDS = frozenset({"connector", "task", "commit", "tasks-fencing", SESSION_KEY})

#: In the order in which Connect tries them.
_PREFIXES = (
    "target-state-",
    "connector-",
    "task-",
    "commit-",
    "restart-connector-",
    "tasks-fencing-",
    "logger-cluster-",
)

UNKNOWN = "unknown"


@dataclass(slots=True)
class KindCount:
    """The records of one kind.

    :param live: records that are the newest of their key, and no removals.
    :param dead: all others: compaction will take them.
    :param live_bytes: keys and values of the live ones.
    :param dead_bytes: of the dead ones.
    """

    live: int = 0
    dead: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Census:
    """What a config topic holds.

    :param kinds: by the kind of record.
    :param state: what the records add up to.
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
    def live(self) -> int:
        return sum(kind.live for kind in self.kinds.values())

    @property
    def dead(self) -> int:
        return sum(kind.dead for kind in self.kinds.values())

    @property
    def live_bytes(self) -> int:
        return sum(kind.live_bytes for kind in self.kinds.values())

    @property
    def dead_bytes(self) -> int:
        return sum(kind.dead_bytes for kind in self.kinds.values())

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON, without configurations. Scripts rely on the names."""
        return {
            "records": self.live + self.dead,
            "live": self.live,
            "dead": self.dead,
            "live_bytes": self.live_bytes,
            "dead_bytes": self.dead_bytes,
            "end_offset": self.state.end_offset,
            "kinds": {
                name: {
                    "live": kind.live,
                    "dead": kind.dead,
                    "live_bytes": kind.live_bytes,
                    "dead_bytes": kind.dead_bytes,
                }
                for name, kind in sorted(self.kinds.items())
            },
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
                self._replay.take(record)

    def census(self, end_offset: int) -> Census:
        """What all records so far come to."""
        state = self._replay.state(end_offset)
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
            newest = self._newest[record.key] = _Newest(*kind_of(record.key))
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


def kind_of(key: bytes | None) -> tuple[str, str]:
    """A record's kind, and the connector it is about; empty for kinds that are about none."""
    text = "" if key is None else key.decode("utf-8", errors="replace")
    if text == SESSION_KEY:
        return SESSION_KEY, ""
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            rest = text[len(prefix) :]
            if prefix == "task-":
                rest = rest.rpartition("-")[0]
            return prefix[:-1], "" if prefix == "logger-cluster-" else rest
    return UNKNOWN, ""
