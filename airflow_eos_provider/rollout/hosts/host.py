"""A host: where a worker's settings are edited, and where the worker is restarted.

The code that rolls a cluster uses only :class:`Host` and :class:`HostFacts`: each kind of host knows how to reach its
machine and who owns the process. If a person has to check something, the host names it in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType, Protocol

from airflow_eos_provider.connect.mode_evidence import Declared, Running
from airflow_eos_provider.errors import RefusedError, UnreachableError
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent, RestartEvent
from airflow_eos_provider.rollout.settings import STOP_GRACE_SECONDS

#: One start of one worker, in a form of its host's own. Two are equal if and only if they name the same start; nothing
#: else is to be read from it. Empty while the worker is stopped.
StartToken = NewType("StartToken", str)

NOT_RUNNING = StartToken("")

#: Starts of workers and dates of edits are known to this many seconds.
CLOCK_TICK_SECONDS = 0.02

#: Asked right before a restart begins: whether the worker may be stopped, or, where it is down, started. What it raises
#: is raised, and nothing was touched.
Permit = Callable[[Literal["stop", "start"]], None]


class WorkerStartError(UnreachableError):
    """A worker was started and ended at once; the message carries the end of its log."""


class NotRestartedError(RefusedError):
    """A restart was refused before anything was stopped: the worker is as it was, and not to blame."""


class RestartPendingError(RefusedError):
    """A restart is not over in time; its host goes on with it, and the worker is not to blame."""


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A restart that is asked for.

    :param stop_grace_seconds: how long the worker may take to stop by itself before it is killed.
    :param on_event: receives what happens; of an act that another controller has begun, all that has happened.
    :param permit: see :data:`Permit`.
    :param rollout: the rollout that asks; empty if none does.
    :param replaces: start token of what is to be replaced, as that rollout has announced it.
    :param config_sha256: of the file that the worker is started with; its host fills it in.
    :param changed_at: when that file was last changed, seconds since the epoch, by its machine's clock: a process that
        was started later has read it. Its host fills it in.
    """

    stop_grace_seconds: float = STOP_GRACE_SECONDS
    on_event: OnEvent = lambda _event: None
    permit: Permit = lambda _act: None
    rollout: str = ""
    replaces: str = ""
    config_sha256: str = ""
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """What one write changes.

    :param name: the same for two workers if and only if one write changes the settings of both; empty if the
        description has none.
    :param kind: the noun for it.
    """

    name: str
    kind: str = "file"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a worker may not be touched from here, or does not answer.

    :param act: what it stands against: a ``restart``, a ``change`` of its settings, or an ``answer`` of its REST API.
    :param what: what was found.
    :param remedy: what to do about it.
    :param of_next_start: whether it stands against the next restart only, and says nothing against what runs now.
    """

    act: Literal["restart", "change", "answer"]
    what: str
    remedy: str
    of_next_start: bool = False


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host reports of one worker at one moment.

    :param edit: what has to be written to change the worker's settings.
    :param digest: SHA-256 of what the edit holds now; None if it cannot be read.
    :param properties: the worker's properties, never shown: they may hold secrets.
    :param declared: the mode that they say.
    :param running: the mode that the worker printed at its start, and whether it runs.
    :param is_running: whether a process of the worker was found; False proves nothing, see :attr:`Running.alive`.
    :param started_at: its start, seconds since the epoch; None while it is stopped.
    :param start_token: names this start.
    :param runs_as: in words, what runs, such as ``pid 4711``; empty while it is stopped.
    :param details: what else its host knows it by, for display alone.
    :param problem: in words, why this worker cannot be rolled: what its description lacks, or that its machine is not
        reached; None if nothing.
    :param problem_remedy: what to do about that; empty where the description has to be corrected.
    :param obstacles: why it may not be restarted, or its settings not be changed, from here, or why it is silent.
    :param restart: in words, a restart of it that is under way; None if none is.
    :param restarted: the moments of the restart that has started what runs, where no controller has reported it yet.
    :param launch: what a restart of it executes.
    :param how_to_start: in words, how it is started again where it has ended.
    :param log: where its log is to be read; empty if that is not known.
    :param mode_remedy: what, on its host, would let its mode be proven; empty if nothing is missing.
    """

    worker_id: str
    edit: Edit
    digest: str | None
    declared: Declared
    running: Running
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_running: bool = False
    started_at: float | None = None
    start_token: StartToken = NOT_RUNNING
    runs_as: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    problem: str | None = None
    problem_remedy: str = ""
    obstacles: tuple[Obstacle, ...] = ()
    restart: str | None = None
    restarted: tuple[RestartEvent, ...] = ()
    launch: Launch = Launch()  # noqa: RUF009 (frozen)
    how_to_start: str = ""
    log: str = ""
    mode_remedy: str = ""

    def obstacles_to(self, act: Literal["restart", "change", "answer"]) -> tuple[Obstacle, ...]:
        return tuple(obstacle for obstacle in self.obstacles if obstacle.act == act)

    @property
    def read_its_log(self) -> str:
        """In words, which log is to be read."""
        return f"read its log {self.log}".rstrip()


class Host(Protocol):
    """One worker's host.

    An edit may serve several workers, so what one of them writes or restores holds for all; a restart is single.
    """

    def observe(self) -> HostFacts:
        """The worker as it is now. Never raises for what it finds: that becomes :attr:`HostFacts.problem`."""
        ...

    def unseen(self, why: str) -> HostFacts:
        """What can be said of the worker without looking at its host.

        :param why: in words, why the host does not look.
        """
        ...

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        """SHA-256 that the edit would have with these properties set; None stands for taken away.

        :raises ConfigurationError: it cannot be read or cannot be edited.
        """
        ...

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        """Set properties, and keep what was there before for :meth:`restore`.

        :param properties: their values; None takes a property away.
        :param expect: digest of what is edited, as it was planned.
        :returns: its digest as it is now.
        :raises PlanMovedError: it is not as it was planned.
        :raises EosError: it cannot be changed, and is as it was.
        """
        ...

    def restore(self, *, expect: str, original: str) -> None:
        """Put back what was there before :meth:`edit`. Nothing happens if it is so already.

        :param expect: digest of what was written.
        :param original: digest of what shall be there again.
        :raises PlanMovedError: it was edited since.
        :raises EosError: what was there before is gone, or cannot be written.
        """
        ...

    def restart(self, request: RestartRequest = RestartRequest()) -> None:
        """Stop the worker, if it runs, and start it: one act, which ends without this process.

        An act of this very rollout that another controller has begun is waited for and reported, not done again.

        :raises ConfigurationError: the worker cannot be started; found out before anything is stopped.
        :raises RefusedError: it is not this worker's alone, or it could not be stopped.
        :raises NotRestartedError: it is refused for a reason that is not the worker's; nothing was stopped.
        :raises RestartPendingError: it is not over in time, and goes on without this process.
        :raises WorkerStartError: it ended at once.
        """
        ...
