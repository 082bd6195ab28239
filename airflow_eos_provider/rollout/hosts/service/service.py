"""A service: who owns a worker's process on its machine, reports its state and restarts it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.startup_log import StartupLog
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.rollout.hosts.host import (
    CLOCK_TICK_SECONDS,
    NOT_RUNNING,
    Moment,
    Obstacle,
    RestartEvent,
    RestartRequest,
    StartToken,
)
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.hosts.machine.machine import Machine, in_words
from airflow_eos_provider.rollout.hosts.machine.processes import CommandLines, Process, Processes
from airflow_eos_provider.rollout.hosts.machine.sudo import Command, Sudo

#: A start script may take so long until it executes the program that reads the worker's file, seconds.
START_SCRIPT_SECONDS = 30.0

#: A right that was missing is asked for again after so many seconds.
RIGHT_SECONDS = 20.0


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
    top: Process | None = field(default=None, repr=False)  #: of the worker's family the first: what a restart stops
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


class Service:
    """Who owns one worker's process: as far as the description alone says, nobody that is known."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        self.machine = machine
        self.where = in_words(machine)
        self.worker = worker
        self.address = worker.url  #: where the worker itself listens; behind a proxy it is not what it advertises
        self.sudo = Sudo(machine)
        self.command_lines = CommandLines(machine)
        self._right: tuple[float, Obstacle | None] | None = None

    @property
    def how_to_start(self) -> str:
        """In words, how the worker is started again where it has ended."""
        on_machine = f" on {self.machine.name}" if self.machine.name else ""
        return f"start {self.worker.worker_id}{on_machine} in the usual way"

    @property
    def log(self) -> str:
        """Where its log is to be read: a path, or a command; empty where the description has none."""
        return str(self.worker.log or "")

    @property
    def commands(self) -> tuple[Command, ...]:
        """What its restart runs, exactly: as another user where that goes through sudo ('eos hosts sudoers')."""
        return ()

    @property
    def log_commands(self) -> tuple[Command, ...]:
        """What reads its log through sudo, exactly; empty where the login reads it itself, or where it is a file."""
        return ()

    def launch(self, facts: ServiceFacts | None = None) -> Launch:
        """What a restart executes, with what the service itself knows of it, such as a unit's command."""
        return Launch()

    def look(self) -> ServiceFacts:
        """The worker's process as it is now."""
        return ServiceFacts(problem=self._undescribed)

    def startup(self, facts: ServiceFacts) -> StartupLog:
        """The mode that the process of ``facts`` printed at its start, where its log is no file."""
        return StartupLog(None, "the description has no log")

    def restart(self, request: RestartRequest) -> None:
        """Stop the worker, if it runs, and start it: one act, which the machine finishes without this process.

        See :meth:`airflow_eos_provider.rollout.hosts.host.Host.restart`.
        """
        raise ConfigurationError(
            f"{self.worker.worker_id} cannot be restarted: {self._undescribed}.",
            expected="service: {systemd: UNIT}, {command: {…}} or {start: […]}",
            remedy="Say in the cluster description who owns its process; see docs/connect/describe-a-cluster.md.",
        )

    @property
    def _undescribed(self) -> str:
        return "it has no 'service'" if self.machine.name else "its process is unknown: it has no 'pid_file'"

    def _missing_right(self) -> tuple[Obstacle, ...]:
        """Whether sudo lets the login restart it. A right that is there stays; one that is missing may yet be given."""
        if not self.worker.uses_sudo_for("service"):
            return ()
        if self._right is None or (self._right[1] and time.monotonic() - self._right[0] > RIGHT_SECONDS):
            obstacle = self.sudo.obstacle(self.commands, "restart")
            self._right = (time.monotonic(), obstacle and replace(obstacle, of_next_start=True))
        return (self._right[1],) if self._right[1] else ()

    def _reads_another_file(self, process: Process | None, reads_file: bool | None, processes: Processes) -> bool:
        """Whether the process was started without the worker's file; a start script may not have come to it yet."""
        if process is None or reads_file is not False or self.worker.config is None:
            return False
        return processes.now - process.started_at >= START_SCRIPT_SECONDS
