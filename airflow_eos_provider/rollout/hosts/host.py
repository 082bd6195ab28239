"""A host: where a worker's settings are edited, and where the worker is restarted.

The code that rolls a cluster uses only :class:`Host` and :class:`HostFacts`: each kind of host knows how to reach its
machine and who owns the process. If a person has to check something, the host names it in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NewType, Protocol

from airflow_eos_provider.connect.mode_evidence import Declared, Running
from airflow_eos_provider.errors import RefusedError, UnreachableError
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.roll_settings import STOP_GRACE_SECONDS

#: One start of one worker, in a form of its host's own. Two are equal if and only if they name the same start; nothing
#: else is to be read from it. Empty while the worker is stopped.
StartToken = NewType("StartToken", str)

NOT_RUNNING = StartToken("")

#: Starts of workers and dates of edits are known to this many seconds.
CLOCK_TICK_SECONDS = 0.02

#: Asked right before a restart begins: whether the worker may be stopped, or, where it is down, started. What it raises
#: is raised, and nothing was touched.
Permit = Callable[[Literal["stop", "start"]], None]


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


class WorkerStartError(UnreachableError):
    """A worker was started and ended at once; the message carries the end of its log."""


class NotRestartedError(RefusedError):
    """A restart was refused before anything was stopped: the worker is as it was, and not to blame."""


class RestartPendingError(RefusedError):
    """A restart is not over in time; its host goes on with it, and the worker is not to blame."""


@dataclass(frozen=True, slots=True)
class RestartRequest:
    #: how long the worker may take to stop by itself before it is killed.
    stop_grace_seconds: float = STOP_GRACE_SECONDS
    #: receives what happens; of an act that another controller has begun, all that has happened.
    on_event: OnEvent = lambda _event: None
    permit: Permit = lambda _act: None  #: see :data:`Permit`
    rollout: str = ""  #: the rollout that asks; empty if none does
    replaces: str = ""  #: start token of what is to be replaced, as that rollout has announced it
    config_sha256: str = ""  #: of the file that the worker is started with; its host fills it in
    #: when that file was last changed, seconds since the epoch, by its machine's clock: a process that was started
    #: later has read it. Its host fills it in.
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """What one write changes."""

    #: the same for two workers if and only if one write changes the settings of both; empty if the description has
    #: none.
    name: str
    kind: str = "file"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a worker may not be touched from here, or does not answer."""

    #: what it stands against: a ``restart``, a ``change`` of its settings, or an ``answer`` of its REST API.
    act: Literal["restart", "change", "answer"]
    what: str  #: what was found
    remedy: str  #: what to do about it
    #: whether it stands against the next restart only, and says nothing against what runs now.
    of_next_start: bool = False


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host reports of one worker at one moment."""

    worker_id: str
    edit: Edit  #: what has to be written to change the worker's settings
    digest: str | None  #: SHA-256 of what the edit holds now; None if it cannot be read
    declared: Declared  #: the mode that they say
    running: Running  #: the mode that the worker printed at its start, and whether it runs
    #: the worker's properties, never shown: they may hold secrets.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: whether a process of the worker was found; False proves nothing, see :attr:`Running.alive`.
    is_running: bool = False
    started_at: float | None = None  #: its start, seconds since the epoch; None while it is stopped
    start_token: StartToken = NOT_RUNNING  #: names this start
    runs_as: str = ""  #: in words, what runs, such as ``pid 4711``; empty while it is stopped
    details: Mapping[str, object] = field(default_factory=dict)  #: what else its host knows it by, for display alone
    #: in words, why this worker cannot be rolled: what its description lacks, or that its machine is not reached; None
    #: if nothing.
    problem: str | None = None
    problem_remedy: str = ""  #: what to do about that; empty where the description has to be corrected
    #: why it may not be restarted, or its settings not be changed, from here, or why it is silent.
    obstacles: tuple[Obstacle, ...] = ()
    restart: str | None = None  #: in words, a restart of it that is under way; None if none is
    #: the moments of the restart that has started what runs, where no controller has reported it yet.
    restarted: tuple[RestartEvent, ...] = ()
    #: what a restart of it executes.
    launch: Launch = Launch()  # noqa: RUF009 (frozen)
    how_to_start: str = ""  #: in words, how it is started again where it has ended
    log: str = ""  #: where its log is to be read; empty if that is not known
    mode_remedy: str = ""  #: what, on its host, would let its mode be proven; empty if nothing is missing

    def obstacles_to(self, act: Literal["restart", "change", "answer"]) -> tuple[Obstacle, ...]:
        return tuple(obstacle for obstacle in self.obstacles if obstacle.act == act)

    @property
    def read_its_log(self) -> str:
        return f"read its log {self.log}".rstrip()


class Host(Protocol):
    """One worker's host.

    An edit may serve several workers, so what one of them writes or restores holds for all; a restart is single.
    """

    def observe(self) -> HostFacts:
        """The worker as it is now. Never raises for what it finds: that becomes :attr:`HostFacts.problem`."""
        ...

    def unseen(self, why: str) -> HostFacts:
        """What can be said of the worker without looking at its host; ``why`` says in words why nobody looks."""
        ...

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        """SHA-256 that the edit would have with these properties set; None stands for taken away."""
        ...

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        """Set properties (None takes one away), keep what was there before for :meth:`restore`, return the new digest.

        Refuses with a ``PlanMovedError`` what does not have the expected digest. Any error leaves it as it was.
        """
        ...

    def restore(self, *, expect: str, original: str) -> None:
        """Put back what was there before :meth:`edit`, with the digest ``original``, unless it is so already.

        Refuses with a ``PlanMovedError`` what was edited since it had the digest ``expect``.
        """
        ...

    def restart(self, request: RestartRequest = RestartRequest()) -> None:
        """Stop the worker, if it runs, and start it: one act, which ends without this process.

        An act of this very rollout that another controller has begun is waited for and reported, not done again. A
        ``ConfigurationError`` or ``NotRestartedError`` comes before anything is stopped, a ``RestartPendingError``
        while the act goes on, and a ``WorkerStartError`` if the worker ended at once.
        """
        ...
