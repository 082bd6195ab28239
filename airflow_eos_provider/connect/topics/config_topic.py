"""A Connect cluster's config topic, replayed into an immutable state, and followed from there on.

Rules: Connect's ``KafkaConfigBackingStore`` and ``ClusterConfigState`` (4.3.1): a starting worker reads the same state
from the same records. One record is different: the value of ``session-key`` signs requests between workers, so the
reader drops it, and nothing can keep or show it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.read.follow import Follower
from airflow_eos_provider.kafka.read.reader import LogRecord

SESSION_KEY = "session-key"

#: The kind of a key that Connect does not know.
UNKNOWN = "unknown"

_TARGET_STATES = ("STARTED", "PAUSED", "STOPPED")

#: Values that a replay remembers parsed.
_PARSED_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class TaskSet:
    """A complete set of task configurations, as one ``commit-`` record put it in force.

    :param commit_offset: offset of that record.
    :param configs: configuration by task number, never shown: it may hold secrets.
    """

    count: int
    commit_offset: int
    configs: Mapping[int, Mapping[str, str | None]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TaskCountRecord:
    """``tasks-fencing-<connector>``: how many tasks the next fencing round must fence. It outlives its connector.

    :param count: number of tasks; their transactional ids are ``<group>-<connector>-0`` and so on.
    """

    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConnectorConfigState:
    """One connector, as the config topic has it.

    :param config: its configuration, never shown: it may hold secrets.
    :param config_offset: offset of the newest ``connector-`` record.
    :param target_state: ``STARTED``, ``PAUSED`` or ``STOPPED``.
    :param task_set: the last complete task set; None before the first one.
    :param commit_offset: offset of the newest ``commit-`` record, complete or not; None before the first one.
    :param changed_at_ms: when the newest record about it was written, task configurations left out,
        milliseconds since the epoch by the clock of the worker, or of the broker, that dated it; 0 if unknown.
    :param fencing: the newest task count record, also one from before the connector was last deleted.
    :param inconsistent: the newest commit lacks task configurations (compaction, or a leader that died), so Connect
        starts no task until the connector is reconfigured.
    :param pending_fencing: the newest commit comes after the newest task count record, so under ``enabled`` a fencing
        round comes before the next task starts.
    """

    name: str
    config: Mapping[str, str | None] = field(repr=False)
    config_offset: int
    target_state: str
    task_set: TaskSet | None = None
    commit_offset: int | None = None
    fencing: TaskCountRecord | None = None
    inconsistent: bool = False
    pending_fencing: bool = False
    changed_at_ms: int = 0

    @property
    def task_count(self) -> int | None:
        """Tasks in the last complete set; None before the first one."""
        return self.task_set.count if self.task_set else None

    @property
    def task_count_record(self) -> int | None:
        return self.fencing.count if self.fencing else None

    @property
    def task_count_record_offset(self) -> int | None:
        return self.fencing.offset if self.fencing else None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The config topic up to one end.

    :param connectors: by name; deleted ones are not among them.
    :param end_offset: end of the topic when it was read. It moves on a healthy cluster too (pauses, session keys).
    :param last_rebalance_offset: offset of the last record that makes the group rebalance, -1 if there is none: a
        commit, a new connector, a deleted connector. A connector whose first records compaction has taken cannot be
        called new or changed; it does not count here.
    :param marker_gaps: offsets without a record where compaction has certainly not been, so they are transaction
        markers (or aborted records): proof that a leader wrote in transactions. Empty proves nothing.
    :param task_count_records: all of them by connector, deleted connectors' too.
    :param unknown: records whose key Connect does not know, as ``offset key``.
    :param malformed: records that Connect would ignore for their form, as ``offset key``.
    """

    connectors: Mapping[str, ConnectorConfigState]
    end_offset: int
    last_rebalance_offset: int = -1
    marker_gaps: tuple[int, ...] = ()
    task_count_records: Mapping[str, TaskCountRecord] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()


def read_cluster_state(kafka: Kafka, topic: str, timeout_seconds: float = 20.0) -> ClusterState:
    """The state that all committed records of a config topic add up to.

    :param kafka: its settings; or a session, which reads only what has come since its last look.
    :raises ReadTimeoutError: an open transaction (of the leader's) holds the reader back, or there was too much. What
        was read is not lost: a session's next read goes on there.
    """
    with session_of(kafka) as session:
        return session.follower(config_follower, topic).read(session, timeout_seconds)


def config_follower(topic: str) -> Follower[ClusterState]:
    return Follower(topic, ConfigReplay)


class _MalformedError(Exception):
    """Connect would log an error and go on without this record. Carries no value."""


class ConfigReplay:
    """A config topic replayed in one go or in several, see :class:`~airflow_eos_provider.kafka.read.follow.Replay`.

    Fields and branches follow ``KafkaConfigBackingStore``.
    """

    def __init__(self) -> None:
        self.configs: dict[str, tuple[Mapping[str, str | None], int]] = {}
        self.target_states: dict[str, str] = {}
        self.deferred: dict[str, dict[int, Mapping[str, str | None]]] = {}
        self.task_sets: dict[str, TaskSet] = {}
        self.commits: dict[str, int] = {}
        self.fencing: dict[str, TaskCountRecord] = {}
        self.pending: set[str] = set()
        self.inconsistent: set[str] = set()
        self.unknown: list[str] = []
        self.malformed: list[str] = []
        self.last_rebalance_offset = -1
        self.marker_gaps: list[int] = []
        #: Connectors that some record has spoken of since their last deletion, and where.
        self._mentioned: dict[str, int] = {}
        self._changed_at_ms: dict[str, int] = {}
        # A topic that is yet to be compacted has the same keys and values thousands of times.
        self._kinds: dict[bytes | None, tuple[str, str]] = {}
        self._parsed: dict[bytes, object] = {}
        self._offsets = _Offsets()

    def take(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            self._offsets.take(record)
            self.take_one(record._replace(value=None) if record.key == SESSION_KEY.encode() else record)

    def stop(self, position: int) -> None:
        self.marker_gaps.extend(self._offsets.marker_gaps(position))
        self._offsets = _Offsets(position)

    def content(self, end_offset: int) -> ClusterState:
        return ClusterState(
            connectors={name: self.connector(name) for name in sorted(self.configs)},
            end_offset=end_offset,
            last_rebalance_offset=self.last_rebalance_offset,
            marker_gaps=tuple(self.marker_gaps),
            task_count_records=dict(self.fencing),
            unknown=tuple(self.unknown),
            malformed=tuple(self.malformed),
        )

    def take_one(self, record: LogRecord) -> None:
        """One record, without a look at its offset."""
        found = self._kinds.get(record.key)
        if found is None:
            found = self._kinds[record.key] = kind_of(record.key)
        kind, name = found
        try:
            if process := _PROCESSORS.get(kind):
                process(self, name, self._parse(record.value), record.offset)
                self._changed_at_ms[name] = record.timestamp_ms
            elif kind == UNKNOWN:
                self.unknown.append(f"{record.offset} {name}")
        except _MalformedError:
            self.malformed.append(f"{record.offset} {_text(record.key)}")

    def _parse(self, value: bytes | None) -> object:
        """A value as JSON; whoever gets it does not change it, for another record may have the same."""
        if value is None:
            return None
        found = self._parsed.get(value)
        if found is None:
            if len(self._parsed) >= _PARSED_KEPT:
                self._parsed.clear()
            found = self._parsed[value] = _parse(value)
        return found

    def target_state(self, name: str, value: object, offset: int) -> None:
        if value is None:  # deletion of the connector writes this tombstone too
            self.target_states.pop(name, None)
            return
        fields = _mapping(value)
        # state.v2 knows STOPPED; older workers read and write only 'state', where STOPPED is shown as PAUSED (KIP-875).
        state = fields.get("state.v2")
        if not isinstance(state, str):
            state = fields.get("state")
        if state not in _TARGET_STATES:
            raise _MalformedError
        self.target_states[name] = str(state)
        self._mentioned.setdefault(name, offset)

    def connector_config(self, name: str, value: object, offset: int) -> None:
        if value is None:
            self._forget(name)
            # What a deleted connector leaves behind (task count record, pending fencing, commits) stays as it is.
            self._mentioned.pop(name, None)
            self.last_rebalance_offset = offset
            return
        config = _properties(value)
        if self._is_new(name, offset):
            self.last_rebalance_offset = offset
        self.configs[name] = (config, offset)
        self._mentioned.setdefault(name, offset)

    def _is_new(self, name: str, offset: int) -> bool:
        """Whether a ``connector-`` record at this offset certainly created the connector.

        It did if no record further up speaks of it. One that does belongs to an earlier configuration, whose record
        compaction may have taken; only the initial target state of a creation (KIP-980) comes directly before it,
        in the same transaction.
        """
        mentioned = self._mentioned.get(name)
        return mentioned is None or (name in self.target_states and mentioned == offset - 1)

    def task_config(self, task: str, value: object, offset: int) -> None:
        # Java's String.split drops empty parts at the end, so trailing dashes do not count.
        name, dash, number = task.rstrip("-").rpartition("-")
        if not dash or not number.lstrip("+").isdecimal():
            raise _MalformedError
        config = _properties(value)  # null is an error too: task records are never deleted
        self.deferred.setdefault(name, {})[int(number)] = config
        self._mentioned.setdefault(name, offset)

    def commit(self, name: str, value: object, offset: int) -> None:
        self._mentioned.setdefault(name, offset)
        if name not in self.configs:
            # The connector was deleted, and compaction has since taken its config and tombstone (KAFKA-16838).
            self._forget(name)
            return
        count = _integer(_mapping(value).get("tasks"))
        deferred = self.deferred.pop(name, {})
        if all(number in deferred for number in range(count)):
            # More configs than the count are here when compaction has taken the commit of an earlier, larger set.
            self.task_sets[name] = TaskSet(count, offset, {number: deferred[number] for number in range(count)})
            self.inconsistent.discard(name)
        else:
            self.inconsistent.add(name)
        self.commits[name] = offset
        self.pending.add(name)
        self.last_rebalance_offset = offset

    def task_count_record(self, name: str, value: object, offset: int) -> None:
        self.fencing[name] = TaskCountRecord(_integer(_mapping(value).get("task-count")), offset)
        self.pending.discard(name)
        self._mentioned.setdefault(name, offset)

    def ignored(self, name: str, value: object, offset: int) -> None:
        """Restart requests and logger levels: a starting worker passes over them."""

    def _forget(self, name: str) -> None:
        self.configs.pop(name, None)
        self.task_sets.pop(name, None)
        self.commits.pop(name, None)
        self.deferred.pop(name, None)

    def connector(self, name: str) -> ConnectorConfigState:
        config, offset = self.configs[name]
        return ConnectorConfigState(
            name=name,
            config=config,
            config_offset=offset,
            target_state=self.target_states.get(name, "STARTED"),
            task_set=self.task_sets.get(name),
            commit_offset=self.commits.get(name),
            fencing=self.fencing.get(name),
            inconsistent=name in self.inconsistent,
            pending_fencing=name in self.pending,
            changed_at_ms=self._changed_at_ms.get(name, 0),
        )


#: What is done with a record: the replay, the key behind its prefix, the value, the offset.
_Process = Callable[[ConfigReplay, str, object, int], None]

#: By the prefix of the key, in the order in which Connect tries them: the first that fits decides.
_PROCESSORS: dict[str, _Process] = {
    "target-state": ConfigReplay.target_state,
    "connector": ConfigReplay.connector_config,
    "task": ConfigReplay.task_config,
    "commit": ConfigReplay.commit,
    "restart-connector": ConfigReplay.ignored,
    "tasks-fencing": ConfigReplay.task_count_record,
    "logger-cluster": ConfigReplay.ignored,
}


class _Offsets:
    """Finds the offsets that are certainly markers, in one read.

    Where two records of one key are left, the later one was beyond the cleaner's reach at its last run, and so
    was everything after it: compaction would have taken the earlier one otherwise. Only gaps from there on count. What
    an earlier read has seen proves nothing here, since the cleaner may have run in between.
    """

    def __init__(self, begin: int = 0) -> None:
        self._keys: set[bytes | None] = set()
        self._uncompacted_from: int | None = None
        self._gaps: list[int] = []
        self._next = begin

    def take(self, record: LogRecord) -> None:
        if self._uncompacted_from is not None:
            self._gaps.extend(range(self._next, record.offset))
        elif record.key in self._keys:
            self._uncompacted_from = record.offset
        self._keys.add(record.key)
        self._next = record.offset + 1

    def marker_gaps(self, end_offset: int) -> tuple[int, ...]:
        if self._uncompacted_from is None:
            return ()
        return (*self._gaps, *range(self._next, end_offset))


def kind_of(key: bytes | None) -> tuple[str, str]:
    """The kind of a key's records, and the rest of the key; the whole key of an unknown one."""
    text = _text(key)
    if text == SESSION_KEY:
        return SESSION_KEY, ""
    for kind in _PROCESSORS:
        if text.startswith(f"{kind}-"):
            return kind, text[len(kind) + 1 :]
    return UNKNOWN, text


def _text(key: bytes | None) -> str:
    return "(no key)" if key is None else key.decode("utf-8", errors="replace")


def _parse(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # bad JSON, bad UTF-8, nested beyond reason
        raise _MalformedError from None


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _MalformedError
    return value


def _properties(value: object) -> Mapping[str, str | None]:
    return trimmed(_mapping(_mapping(value).get("properties")))


def _integer(value: object) -> int:
    """Connect takes whole JSON numbers only; ``1.0`` makes it throw."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _MalformedError
    return value
