"""A worker that a service owns, on this machine or another one: its properties file there × its service.

File and process are compared by their own machine's clock. Times that leave the host are converted to this machine's
clock by the offset that the same look has measured, so that a wrong clock on a machine does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NoReturn

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY
from airflow_eos_provider.connect.mode_evidence import Declared, Running, declare
from airflow_eos_provider.connect.properties import followed, read, references
from airflow_eos_provider.connect.startup_log import STARTUP_SECONDS, StartupLog
from airflow_eos_provider.connect.topics.internal_topics import SHARED
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.redaction import remember
from airflow_eos_provider.rollout.hosts.host import (
    Edit,
    HostFacts,
    NotRestartedError,
    Obstacle,
    RestartRequest,
    StartToken,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Machine, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.processes import Process
from airflow_eos_provider.rollout.hosts.machine.properties_file import FileContent, PropertiesFile
from airflow_eos_provider.rollout.hosts.machine.worker_log import startup_mode, zone_at
from airflow_eos_provider.rollout.hosts.ownership import own_address
from airflow_eos_provider.rollout.hosts.service.service import Service, ServiceFacts


@dataclass(frozen=True, slots=True)
class _FileLook:
    content: FileContent | None = None
    properties: Mapping[str, str] | None = None  #: None if it cannot be read, or is none
    problem: str | None = None  #: why not
    remedy: str = ""  #: what to do about that
    obstacles: tuple[Obstacle, ...] = ()


class ServicedHost:
    """One worker that a service owns; a :class:`~airflow_eos_provider.rollout.hosts.host.Host`."""

    def __init__(self, worker: WorkerDescription, machine: Machine, service: Service) -> None:
        self._worker = worker
        self._machine = machine
        self._service = service
        self._startup: tuple[StartToken, StartupLog] | None = None
        sudo = worker.uses_sudo_for("file")
        config = None if worker.config is None else worker.config if machine.name else worker.config.absolute()
        self._file = PropertiesFile(machine, PurePosixPath(config), sudo=sudo) if config is not None else None

    def observe(self) -> HostFacts:
        """File and process as they are now: two round trips, and one or two more at each start of the worker."""
        try:
            file = self._look_at_file()
            self._service.address = own_address(self._worker.url, file.properties or {})
            service = self._service.look()
            running = self._running(service)
        except EosError as error:  # not to be reached, not to be logged in to, or no machine that can be looked at
            return self._unseen(_why(error), error.remedy or "make its machine reachable")
        problems = [problem for problem in (file.problem, service.problem, *self._gaps()) if problem]
        process = service.process
        return HostFacts(
            worker_id=self._worker.worker_id,
            edit=self._edit(file.content),
            digest=file.content.sha256 if file.content else None,
            properties=MappingProxyType(followed(file.properties or {}, SHARED, service.variables.get)),
            declared=_declared(file, service, problems),
            running=running,
            is_running=process is not None,
            started_at=process.started_at + service.clock_offset if process else None,
            start_token=service.token,
            runs_as=self._runs_as(service),
            details=service.details,
            problem="; ".join(dict.fromkeys(problems)) or None,
            problem_remedy=file.remedy if problems == [file.problem] else "",
            obstacles=(*service.obstacles, *file.obstacles, *self._supplied_elsewhere(file, service)),
            restart=service.restart,
            restarted=service.restarted,
            launch=self._service.launch(service),
            how_to_start=self._service.how_to_start,
            log=self._log,
            mode_remedy=self._mode_remedy(service, running),
        )

    def unseen(self, why: str) -> HostFacts:
        return self._unseen(why, f"{why}: make that possible, for its mode is proven there")

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        try:
            return self._described_file.digest_with(properties)
        except ConfigurationError as error:
            self._refuse(properties, error)

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        """Set properties of the worker's file; the bytes before stand in ``<file>.eos-backup`` on its machine."""
        try:
            return self._described_file.edit(properties, expect=expect)
        except ConfigurationError as error:
            self._refuse(properties, error)

    def restore(self, *, expect: str, original: str) -> None:
        self._described_file.restore(expect=expect, original=original)

    def restart(self, request: RestartRequest = RestartRequest()) -> None:  # noqa: B008 (frozen)
        """Let the service stop the worker, if it runs, and start it; the machine finishes that without this process."""
        try:
            content = self._described_file.read()
        except MachineLostError:
            raise
        except EosError as error:
            raise NotRestartedError(
                f"{self._worker.worker_id} was not restarted: {error.found.rstrip('.')}. Nothing was stopped.",
                expected=error.expected,
                remedy=error.remedy,
            ) from error
        with suppress(ConfigurationError):
            properties = read(content.data)
            remember(properties)
            self._service.address = own_address(self._worker.url, properties)
        self._service.restart(replace(request, config_sha256=content.sha256, changed_at=content.changed_at))

    @property
    def _described_file(self) -> PropertiesFile:
        if self._file is None:
            raise ConfigurationError(
                f"The cluster description has no 'config' for {self._worker.worker_id}.",
                remedy="Name the worker's properties file on its machine.",
            )
        return self._file

    def _look_at_file(self) -> _FileLook:
        if self._file is None:
            return _FileLook(problem="it has no 'config'")
        try:
            content = self._file.read()
        except ConfigurationError as error:
            return _FileLook(problem=error.found.rstrip("."), remedy=(error.remedy or "").rstrip("."))
        obstacles = self._obstacles_to_change(self._file)
        try:
            properties = read(content.data)
        except ConfigurationError as error:
            return _FileLook(content, None, error.found.rstrip("."), obstacles=obstacles)
        remember(properties)
        return _FileLook(content, properties, obstacles=obstacles)

    def _obstacles_to_change(self, file: PropertiesFile) -> tuple[Obstacle, ...]:
        """What stands against a change; where that cannot be found out, the reason for it."""
        try:
            found = file.obstacle_to_change()
        except ConfigurationError as error:
            found = Obstacle("change", error.found.rstrip("."), (error.remedy or "").rstrip("."))
        return (found,) if found is not None else ()

    def _running(self, service: ServiceFacts) -> Running:
        process = service.process
        if process is None:
            detail = service.state or service.problem or "its process is unknown"
            return Running(None, detail, None, alive=False if service.stopped else None)
        startup = self._startup_of(process, service)
        return Running(
            mode=startup.mode,
            detail=startup.detail,
            started_at=process.started_at + service.clock_offset,
            alive=True,
            reads_file=service.reads_file,
        )

    def _startup_of(self, process: Process, service: ServiceFacts) -> StartupLog:
        """What the process printed at its start. It prints it once, so an answer holds for as long as it lives."""
        if self._worker.log is None:
            return self._service.startup(service)
        if self._startup is not None and self._startup[0] == service.token:
            return self._startup[1]
        log, variable = PurePosixPath(self._worker.log), _zone_variable(process, service)
        zone = zone_at(self._machine, process.started_at, variable=variable)
        sudo = self._worker.uses_sudo_for("log")
        found = startup_mode(self._machine, log, process.started_at, zone=zone, sudo=sudo)
        if found.mode is not None or time.time() > process.started_at + service.clock_offset + STARTUP_SECONDS:
            self._startup = (service.token, found)
        return found

    def _unseen(self, why: str, remedy: str) -> HostFacts:
        worker = self._worker
        return HostFacts(
            worker_id=worker.worker_id,
            edit=self._edit(None),
            digest=None,
            declared=Declared(None, why, None),
            running=Running(None, why, None, None),
            details={"machine": self._machine.name} if self._machine.name else {},
            problem=why,
            problem_remedy=remedy.rstrip("."),
            launch=self._service.launch(),
            how_to_start=self._service.how_to_start,
            log=self._log,
            mode_remedy=remedy.rstrip("."),
        )

    def _edit(self, content: FileContent | None) -> Edit:
        """The same for all workers of one machine that are started with one file."""
        path = str(content.path if content is not None else self._worker.config or "")
        return Edit(f"{self._machine.name}:{path}" if self._machine.name else path)

    @property
    def _log(self) -> str:
        log = self._service.log
        return f"{log} on {self._machine.name}" if log and self._machine.name else log

    def _runs_as(self, service: ServiceFacts) -> str:
        on_machine = f" on {self._machine.name}" if self._machine.name else ""
        return f"{service.runs_as}{on_machine}" if service.runs_as else ""

    def _gaps(self) -> Iterator[str]:
        if not self._service.log:
            yield "it has no 'log'"

    def _mode_remedy(self, service: ServiceFacts, running: Running) -> str:
        if service.process is None and self._worker.service is None:
            return "complete config, log and pid_file in the cluster file: its process is unknown without them"
        if service.process is None and not service.stopped:
            return service.problem or "find out why its process is not found"
        if service.process is not None and running.mode is None and running.reads_file is False:
            return f"correct 'config' in the cluster file: its process was not started with {self._worker.config}"
        return ""

    def _supplied_elsewhere(self, file: _FileLook, service: ServiceFacts) -> Iterator[Obstacle]:
        """A mode that the file takes from a variable can only be changed where that is set."""
        text = (file.properties or {}).get(MODE_PROPERTY, "")
        for reference in references(text):
            source = service.variable_sources.get(reference.key)
            if source is not None:
                yield Obstacle(
                    "change",
                    f"the mode of {self._worker.worker_id} is the variable {reference.key}, which {source} sets",
                    f"write the mode itself into {self._worker.config} and restart the worker, or change {source} "
                    "manually",
                )

    def _refuse(self, properties: Mapping[str, str | None], error: ConfigurationError) -> NoReturn:
        """Raise the refusal of an edit, with what sets the variables that the file's values come from."""
        now = read(self._described_file.read().data)
        keys = [reference.key for name in properties for reference in references(now.get(name, ""))]
        sources = self._service.look().variable_sources if keys else {}
        named = [f"{key} is set by {sources[key]}" for key in keys if key in sources]
        found = f"{error.found.rstrip('.')}: {', '.join(named)}." if named else error.found
        raise ConfigurationError(found, expected=error.expected, remedy=error.remedy) from error


def _why(error: EosError) -> str:
    """What was found and, of a host key that is not the known one, which one is."""
    found = error.found.rstrip(".")
    return f"{found}. Expected: {error.expected}" if error.expected else found


def _zone_variable(process: Process, service: ServiceFacts) -> str:
    """The zone in which a JVM writes its dates, where that is not its machine's."""
    named = [word.partition("=")[2] for word in process.command_line if word.startswith("-Duser.timezone=")]
    return named[-1] if named else service.variables.get("TZ", "")


def _declared(file: _FileLook, service: ServiceFacts, problems: list[str]) -> Declared:
    """What the file says, its moments moved to this machine's clock."""
    content = file.content
    if content is None or file.properties is None:
        return Declared(None, problems[0] if problems else "", None)
    # A variable that the mode comes from is part of what is declared, and so is the file that sets it.
    supplied = bool(references(file.properties.get(MODE_PROPERTY, "")))
    others = [service.variables_changed_at] if supplied and service.variables_changed_at is not None else []
    return declare(
        file.properties,
        modified_at=max([content.modified_at, *others]) + service.clock_offset,
        changed_at=max([content.changed_at, *others]) + service.clock_offset,
        variable=service.variables.get,
    )
