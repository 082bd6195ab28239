"""Differences between two snapshots of a Kafka cluster's transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_eos_provider.data_text import duration
from airflow_eos_provider.transactions.hanging import HangingLook
from airflow_eos_provider.transactions.known_ids import KnownId

#: What is open: its id or partition, and where or when it began.
_Key = tuple[str, int]


class ChangeKind(StrEnum):
    OPEN = "open long"
    OVERDUE = "overdue"
    HANGING = "hanging"
    ENDED = "ended"
    UNSEEN = "not seen"
    SEEN = "seen again"


@dataclass(frozen=True, slots=True)
class Change:
    at: float
    kind: ChangeKind
    subject: str
    what: str

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {"at": self.at, "change": str(self.kind), "subject": self.subject, "what": self.what}


@dataclass(frozen=True, slots=True)
class Moment:
    """One look.

    :param hanging: what partitions hold open; None if the look failed.
    :param problem: why it failed.
    """

    at: float
    opened: tuple[KnownId, ...] = ()
    hanging: HangingLook | None = None
    problem: str = ""

    @property
    def unseen(self) -> str:
        """In words what was not seen; empty if all was."""
        if self.hanging is None:
            return self.problem
        parts = [self.hanging.hidden] if self.hanging.hidden else []
        parts += [f"{held.topic}-{held.partition}" for held in self.hanging.unseen]
        parts += [f"{topic}-{number}" for topic, number in self.hanging.unknown]
        return f"whether something hangs in {', '.join(parts[:5])}{' …' if len(parts) > 5 else ''}" if parts else ""


@dataclass(frozen=True, slots=True)
class _State:
    kind: ChangeKind
    subject: str
    what: str


def changes(before: Moment | None, now: Moment, long_seconds: float) -> tuple[Change, ...]:
    """What has changed since the look before; at the first one, what is not as it should be.

    A look that failed shows no change of a transaction: neither that it began nor that it ended.

    :param before: the last look that did not fail, with what was not seen since in its problem.
    """
    found = list(_sight(before, now))
    if now.hanging is None:
        return tuple(found)
    then, since = _states(before, long_seconds), _states(now, long_seconds)
    found += [
        Change(now.at, state.kind, state.subject, state.what)
        for key, state in since.items()
        if key not in then or then[key].kind is not state.kind
    ]
    found += [
        Change(now.at, ChangeKind.ENDED, state.subject, f"{state.subject}: it was {state.kind}, and has ended")
        for key, state in then.items()
        if key not in since and not _may_go_on(key, now.hanging)
    ]
    return tuple(found)


def _sight(before: Moment | None, now: Moment) -> Iterator[Change]:
    was = before.unseen or before.problem if before else ""
    if now.unseen and now.unseen != was:
        yield Change(now.at, ChangeKind.UNSEEN, "", now.unseen)
    elif was and not now.unseen:
        yield Change(now.at, ChangeKind.SEEN, "", "everything is seen again")


def _may_go_on(key: _Key, look: HangingLook) -> bool:
    """Whether what hung before may still: its partition was not seen."""
    places = {f"{held.topic}-{held.partition}" for held in look.unseen}
    return key[0] in places | {f"{topic}-{number}" for topic, number in look.unknown}


def _states(moment: Moment | None, long_seconds: float) -> Mapping[_Key, _State]:
    """By transaction what is not as it should be."""
    found: dict[_Key, _State] = {}
    if moment is None:
        return found
    for one in moment.opened:
        seconds, started = one.open_seconds(moment.at), one.description.started_at_ms
        if seconds is None or started is None:
            continue
        said = f"{one.id} ({one.owner.text}): open for {duration(seconds)}"
        if one.is_overdue(moment.at):
            text = f"{said}, and its timeout is {duration(one.description.timeout_ms / 1000)}"
            found[one.id, started] = _State(ChangeKind.OVERDUE, one.id, text)
        elif seconds > long_seconds:
            found[one.id, started] = _State(ChangeKind.OPEN, one.id, said)
    for hanging in moment.hanging.hanging if moment.hanging else ():
        held = hanging.held
        place, who = f"{held.topic}-{held.partition}", hanging.transactional_id or f"producer {held.producer_id}"
        text = (
            f"{place}: a transaction of {who} hangs since offset {held.start_offset}; "
            "see 'eos transactions list --hanging'"
        )
        found[place, held.start_offset] = _State(ChangeKind.HANGING, place, text)
    return found
