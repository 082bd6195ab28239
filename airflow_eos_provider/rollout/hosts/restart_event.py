"""Events of a restart, reported by its host in words; for two of them, with the time that a roll records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Moment(StrEnum):
    """A moment of a restart. Acts have it in their records: renaming one breaks restarts in flight."""

    STOPPED = "stopped"  #: the process that is replaced was seen to have ended
    STARTED = "started"  #: the new one was started


@dataclass(frozen=True, slots=True)
class RestartEvent:
    """What has happened."""

    words: str  #: to be read by people
    moment: Moment | None = None  #: which moment that is; None for any other event
    at: float = 0.0  #: when that was, seconds since the epoch, by this machine's clock

    def __str__(self) -> str:
        return self.words


#: Receives each event of a restart once.
OnEvent = Callable[[RestartEvent], None]


def moments_of(events: Iterable[RestartEvent]) -> tuple[RestartEvent, ...]:
    """Those of the events that are moments of the restart."""
    return tuple(event for event in events if event.moment is not None)


def without_moments(on_event: OnEvent) -> OnEvent:
    """Hears of a restart that is another one than was asked for: what it did, and none of its moments."""
    return lambda event: on_event(RestartEvent(event.words))
