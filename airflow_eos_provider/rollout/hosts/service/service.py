"""A service: who owns a worker's process on its machine, reports its state and restarts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_eos_provider.connect.startup_log import StartupLog
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.rollout.hosts.host import (
    CLOCK_TICK_SECONDS,
    NOT_RUNNING,
    Obstacle,
    RestartRequest,
    StartToken,
)
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.processes import Process
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.restart_event import Moment, RestartEvent


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What a service reports of its worker at one moment."""

    process: Process | None = None  #: the process that reads the worker's file; None while it does not run
    #: names this start of it; :data:`~airflow_eos_provider.rollout.hosts.host.NOT_RUNNING` while it does not run.
    token: StartToken = NOT_RUNNING
    #: whether the process's command line names the worker's file; None if that cannot be read.
    reads_file: bool | None = None
    #: in words, how it stands, where no process was found: ``unit kafka-connect@1.service is failed``.
    state: str = ""
    stopped: bool = False  #: whether it is known not to run; False where that is not known
    runs_as: str = ""  #: in words, what runs: ``unit kafka-connect@1.service, pid 4711``
    details: Mapping[str, object] = field(default_factory=dict)  #: what else it is known by, for display alone
    problem: str | None = None  #: in words, what the description has wrong: there is no such unit; None if nothing
    obstacles: tuple[Obstacle, ...] = ()  #: why it may not be restarted, or does not answer
    restart: str | None = None  #: in words, a restart of it that is under way; None if none is
    #: see :attr:`~airflow_eos_provider.rollout.hosts.host.HostFacts.restarted`.
    restarted: tuple[RestartEvent, ...] = ()
    #: variables that it is started with, as far as they can be known; may hold secrets.
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: by name of a variable, what sets it: a file, a drop-in.
    variable_sources: Mapping[str, str] = field(default_factory=dict)
    #: when one of those was last changed, seconds since the epoch, by its machine's clock.
    variables_changed_at: float | None = None
    clock_offset: float = 0.0  #: seconds to add to a moment of that machine's clock to have it by this one's

    @property
    def restarted_already(self) -> RestartEvent:
        """The event that what runs has come since the restart was asked for, whoever has started it."""
        words = f"it was restarted already: {self.runs_as}"
        if self.process is None:
            return RestartEvent(words)
        return RestartEvent(words, Moment.STARTED, self.process.started_at + self.clock_offset)

    def has_done(self, request: RestartRequest) -> bool:
        """Whether what runs is another start than the one that the rollout has announced, and has read the file."""
        if not request.rollout or self.process is None or request.changed_at is None:
            return False
        if self.token in (NOT_RUNNING, request.replaces):
            return False
        return self.process.started_at > request.changed_at + CLOCK_TICK_SECONDS

    def require_restartable(self, worker_id: str) -> None:
        """Refuse a restart that something stands against."""
        obstacle = next((each for each in self.obstacles if each.act == "restart"), None)
        if obstacle is not None:
            raise RefusedError(
                f"{worker_id} may not be restarted from here: {obstacle.what}. Nothing was stopped.",
                remedy=sentence(obstacle.remedy),
            )


def suspended(family: Sequence[Process]) -> tuple[Obstacle, ...]:
    """Why a worker does not answer, if one of its processes is suspended; empty if none is."""
    for member in family:
        if member.is_suspended:
            what = f"its process {member.pid} is suspended (SIGSTOP)"
            return (Obstacle("answer", what, f"continue it: kill -CONT {member.pid}"),)
    return ()


def details_of(process: Process | None, machine: Machine) -> dict[str, object]:
    """What a worker is known by: its pid, and the name of a machine that is not this one."""
    details: dict[str, object] = {"pid": process.pid if process else None}
    return {**details, "machine": machine.name} if machine.name else details


class Service(Protocol):
    """Who owns one worker's process."""

    @property
    def launch(self) -> Launch:
        """What a restart executes, as far as the description alone shows."""
        ...

    @property
    def how_to_start(self) -> str:
        """In words, how the worker is started again where it has ended."""
        ...

    @property
    def log(self) -> str:
        """Where its log is to be read: a path, or a command."""
        ...

    @property
    def commands(self) -> tuple[Command, ...]:
        """What its restart runs, exactly: as another user where that goes through sudo ('eos hosts sudoers')."""
        ...

    @property
    def log_commands(self) -> tuple[Command, ...]:
        """What reads its log through sudo, exactly; empty where the login reads it itself."""
        ...

    def look(self) -> ServiceFacts:
        """The worker's process as it is now."""
        ...

    def launch_now(self, facts: ServiceFacts) -> Launch:
        """What a restart executes, with what the service itself knows of it, such as a unit's command."""
        ...

    def startup(self, facts: ServiceFacts) -> StartupLog:
        """The mode that the process of ``facts`` printed at its start."""
        ...

    def restart(self, request: RestartRequest) -> None:
        """Stop the worker, if it runs, and start it: one act, which the machine finishes without this process.

        See :meth:`airflow_eos_provider.rollout.hosts.host.Host.restart`.
        """
        ...
