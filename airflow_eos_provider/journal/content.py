"""The current content of a group's journal: its records, read in order, from all writers.

Another version of this package may have written there. A record of a newer schema, or a record that cannot be read,
makes its rollout an :class:`Unreadable` one: eos shows it but does not act on it. All other rollouts work as usual.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.records import (
    LEASE_KEY,
    REQUEST_KEY,
    SCHEMA,
    STEP_KEY,
    ChangeRecord,
    Event,
    Lease,
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
        self._lease: Lease | None = None
        self._rollouts: dict[str, RolloutRecord] = {}
        self._steps: dict[str, dict[str, Step]] = {}
        self._requests: dict[str, Request] = {}
        self._events: dict[str, list[Event]] = {}
        self._changes: dict[str, ChangeRecord] = {}
        self._unreadable: dict[str, dict[str, Unreadable]] = {}  # by rollout and key: a later record may be readable
        self._appended_at_ms = 0

    def take(self, records: Iterable[LogRecord]) -> None:
        """Some more records, in the order of the log."""
        for record in records:
            self._take(record)

    def stop(self, position: int) -> None:
        """What one read ends with says nothing about the next."""

    def content(self, end_offset: int) -> JournalContent:
        """The journal up to here; later records do not change it."""
        events = {rollout_id: tuple(sorted(found, key=lambda e: e.at)) for rollout_id, found in self._events.items()}
        unreadable = {
            subject: max(found.values(), key=lambda one: one.appended_at_ms)
            for subject, found in self._unreadable.items()
            if found
        }
        return JournalContent(
            self._lease,
            dict(self._rollouts),
            {rollout_id: dict(steps) for rollout_id, steps in self._steps.items()},
            dict(self._requests),
            events,
            end_offset,
            unreadable,
            self._appended_at_ms,
            dict(self._changes),
        )

    def _take(self, record: LogRecord) -> None:
        key = (record.key or b"").decode(errors="replace")
        self._appended_at_ms = max(self._appended_at_ms, record.timestamp_ms)
        if record.value is None:
            self._requests.pop(key.removeprefix(REQUEST_KEY), None)
            rollout_id, _, worker_id = key.removeprefix(STEP_KEY).partition("/")
            self._steps.get(rollout_id, {}).pop(worker_id, None)
            return
        kind = kind_of(key)
        if kind is None:  # a kind of record that this version does not know
            return
        about = LEASE_KEY if kind == LEASE_KEY else key.removeprefix(kind).partition("/")[0]
        problems = self._unreadable.setdefault(about, {})
        problems.pop(key, None)
        try:
            schema = self._take_document(kind, about, json.loads(record.value), record.timestamp_ms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"has a record {key!r} that this version does not understand ({type(error).__name__}: {error})"
            problems[key] = Unreadable(what, record.timestamp_ms)
            return
        # Of a newer lease only its end counts, which has been understood; the next owner writes its own.
        if schema > SCHEMA and key != LEASE_KEY:
            what = f"was written by a newer version of this package (schema {schema}, this one knows {SCHEMA})"
            problems[key] = Unreadable(what, record.timestamp_ms)

    def _take_document(self, kind: str, about: str, document: dict[str, Any], appended_at_ms: int) -> int:
        """Take one record in as far as it is understood; returns its schema."""
        schema = document.pop("schema")
        if not isinstance(schema, int) or schema < SCHEMA:
            raise ValueError(f"its schema is {schema}")
        if kind == LEASE_KEY:
            self._lease = None  # should this one not be understood, the one before does not count either
        match read_record(kind, document, appended_at_ms):
            case Lease() as lease:
                self._lease = lease
            case RolloutRecord() as rollout:
                self._rollouts[rollout.rollout_id] = rollout
            case Step() as step:
                self._steps.setdefault(about, {})[step.worker_id] = step
            case Request() as request:
                self._requests[request.rollout_id] = request
            case Event() as event:
                self._events.setdefault(event.rollout_id, []).append(event)
            case ChangeRecord() as change:
                self._changes[change.change_id] = change
        return schema
