"""The current content of a group's journal: its records, read in order, from all writers.

Another version of this package may have written there. A record of a newer schema, or a record that cannot be read,
makes its rollout an :class:`Unreadable` one: eos shows it but does not act on it. All other rollouts work as usual.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.records import (
    LEASE_KEY,
    SCHEMA,
    ChangeRecord,
    Event,
    Lease,
    Record,
    Request,
    RolloutRecord,
    Step,
    kind_of,
    read_record,
)
from airflow_eos_provider.kafka.read.reader import LogRecord


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A rollout, or the lease, of which this version does not understand a record."""

    why: str  #: in words, following the rollout's name
    appended_at_ms: int = 0  #: the broker's time of the newest such record, milliseconds since the epoch


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The content of the journal now."""

    lease: Lease | None = None
    rollouts: Mapping[str, RolloutRecord] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Step]] = field(default_factory=dict)  #: by rollout and worker
    requests: Mapping[str, Request] = field(default_factory=dict)  #: by rollout, what was asked for and is not answered
    events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)  #: by rollout, oldest first
    end_offset: int = 0  #: the offset after the last record that was read
    #: By rollout, what this version does not understand of it; the lease under :data:`LEASE_KEY`.
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    appended_at_ms: int = 0  #: the broker's time of the last record, milliseconds since the epoch
    changes: Mapping[str, ChangeRecord] = field(default_factory=dict)  #: by id, changes that are no roll

    @property
    def open_change(self) -> ChangeRecord | None:
        """The change that was begun and not finished; nothing else is begun before it is."""
        own = [change for change in self.changes.values() if change.state.is_open]
        return max(own, key=lambda change: change.started_at, default=None)

    def closed_changes(self, kind: str, about: str) -> list[ChangeRecord]:
        """The changes that are over, in the order of the log: one begins after the one before has ended."""
        own = [change for change in self.changes.values() if (change.plan.get("kind"), change.about) == (kind, about)]
        return [change for change in own if not change.state.is_open]

    def require_no_open_change(self) -> None:
        """Go on only if no change of the group is left in its midst."""
        if self.open_change is not None:
            raise RefusedError(
                f"The change {self.open_change} of this group is not finished.",
                remedy="Run its command again to resume. Or close it: 'eos changes close'.",
            )

    def unfinished(self, plan_hash: str) -> RolloutRecord | None:
        """The newest rollout of this plan that can be taken up again."""
        own = [r for r in self.rollouts.values() if r.plan.get("hash") == plan_hash and r.state.is_open]
        return max(own, key=lambda r: r.started_at, default=None)

    def last_of(self, plan_hash: str) -> RolloutRecord | None:
        """The newest rollout of this plan, in whatever state."""
        own = [r for r in self.rollouts.values() if r.plan.get("hash") == plan_hash]
        return max(own, key=lambda r: r.started_at, default=None)

    def require_understood(self, record: RolloutRecord | None) -> None:
        """Go on only if this version understands all that is on record of this rollout."""
        if record is not None and record.rollout_id in self.unreadable:
            raise not_understood(record.rollout_id, self.unreadable[record.rollout_id])


def not_understood(rollout_id: str, found: Unreadable) -> RefusedError:
    """The refusal to act on a rollout that another version has written."""
    return RefusedError(f"Rollout {rollout_id} {found.why}: only a version that understands it may act on it.")


def content_of(records: Iterable[LogRecord], end_offset: int = 0) -> JournalContent:
    """The journal that these records make, in the order of the log. Never raises for a record's content."""
    replay = JournalReplay()
    replay.take(records)
    return replay.content(end_offset)


class JournalReplay:
    """The journal, read in one go or in several, see :class:`~airflow_eos_provider.kafka.read.follow.Replay`."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}  # by key, the newest that is understood
        self._unreadable: dict[str, Unreadable] = {}  # by key: a later record may be readable
        self._appended_at_ms = 0

    def take(self, records: Iterable[LogRecord]) -> None:
        """Some more records, in the order of the log."""
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            self._appended_at_ms = max(self._appended_at_ms, record.timestamp_ms)
            self._unreadable.pop(key, None)
            if record.value is None:
                self._records.pop(key, None)
            elif (kind := kind_of(key)) is not None and (why := self._take(kind, key, record)):
                self._unreadable[key] = Unreadable(why, record.timestamp_ms)

    def stop(self, position: int) -> None:
        """What one read ends with says nothing about the next."""

    def content(self, end_offset: int) -> JournalContent:
        """The journal up to here; later records do not change it."""
        lease, rollouts, requests = None, dict[str, RolloutRecord](), dict[str, Request]()
        steps, events, changes = dict[str, dict[str, Step]](), dict[str, list[Event]](), dict[str, ChangeRecord]()
        for key, record in self._records.items():
            match record:
                case Lease():
                    lease = record
                case RolloutRecord():
                    rollouts[record.rollout_id] = record
                case Step():
                    steps.setdefault(_subject(key), {})[record.worker_id] = record
                case Request():
                    requests[record.rollout_id] = record
                case Event():
                    events.setdefault(record.rollout_id, []).append(record)
                case ChangeRecord():
                    changes[record.change_id] = record
        unreadable = sorted(self._unreadable.items(), key=lambda found: found[1].appended_at_ms)
        return JournalContent(
            lease,
            rollouts,
            steps,
            requests,
            {rollout_id: tuple(sorted(found, key=lambda event: event.at)) for rollout_id, found in events.items()},
            end_offset,
            {_subject(key): found for key, found in unreadable},
            self._appended_at_ms,
            changes,
        )

    def _take(self, kind: str, key: str, record: LogRecord) -> str:
        """Take one record in as far as it is understood; returns why that is not all of it, or nothing."""
        if kind == LEASE_KEY:
            self._records.pop(key, None)  # should this one not be understood, the one before does not count either
        try:
            document = json.loads(record.value or b"")
            schema = document.pop("schema")
            if not isinstance(schema, int) or schema < SCHEMA:
                raise ValueError(f"its schema is {schema}")
            self._records[key] = read_record(kind, document, record.timestamp_ms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return f"has a record {key!r} that this version does not understand ({type(error).__name__}: {error})"
        # Of a newer lease only its end counts, which has been understood; the next owner writes its own.
        if schema > SCHEMA and kind != LEASE_KEY:
            return f"was written by a newer version of this package (schema {schema}, this one knows {SCHEMA})"
        return ""


def _subject(key: str) -> str:
    """The rollout or change that a key is about; the lease's key is its own."""
    return key if key == LEASE_KEY else key.partition("/")[2].partition("/")[0]
