"""The ``process`` host kind: a worker that runs as a process of this machine.

What it tells about the worker (file, process, start-up log), and the two things it does: change one property of the
worker's file, and restart the worker by its owner's start command.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import psutil

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster import WorkerDescription
from airflow_eos_provider.connect.modes import Declared, Running, declare
from airflow_eos_provider.connect.properties import parse, remove_property, set_property
from airflow_eos_provider.connect.startup_log import STARTUP_SECONDS, StartupLog, mode_from_startup_log
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError, UnreachableError
from airflow_eos_provider.processes import ProcessIdentity
from airflow_eos_provider.rollout.hosts import files, worker_process
from airflow_eos_provider.rollout.hosts.log_tail import tail

#: A started worker is watched until it listens, at most this many seconds; one that ends meanwhile has refused its
#: configuration. A JVM on a busy machine needs some seconds to get there.
EARLY_END_SECONDS = 10.0

#: Start times of processes and dates of files are known to this many seconds.
CLOCK_TICK_SECONDS = 0.02

#: After a worker has ended, its port must be free within this many seconds.
PORT_FREE_SECONDS = 15.0

#: A start that comes within this time after the stop belongs to it; one that comes later was held up on the way.
IN_ONE_GO_SECONDS = PORT_FREE_SECONDS + 5.0


#: Asked right before a worker is stopped and right before it is started; raises to forbid it.
Permit = Callable[[Literal["stop", "start"]], None]


class WorkerStartError(UnreachableError):
    """A worker was started and ended at once; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the host tells about one worker at one moment.

    :param config_path: the properties file as described; None if none is.
    :param config_sha256: SHA-256 of its bytes; None if it cannot be read.
    :param config_modified_at: its last change, seconds since the epoch.
    :param properties: its properties, never shown: they may hold secrets.
    :param process: its live process: the one that the pid file names, or one that runs its very start command.
    :param problem: in words, what keeps this worker from being rolled; None if nothing does.
    """

    worker_id: str
    config_path: Path | None
    config_sha256: str | None
    config_modified_at: float | None
    properties: Mapping[str, str] = field(repr=False)
    declared: Declared
    running: Running
    process: ProcessIdentity | None
    problem: str | None


class ProcessHost:
    """One worker of this machine.

    :param worker: its description.
    """

    def __init__(self, worker: WorkerDescription) -> None:
        self._worker = worker
        self._startup: tuple[ProcessIdentity, StartupLog] | None = None

    def observe(self) -> HostFacts:
        """File and process as they are now. Never raises for what it finds: that becomes :attr:`HostFacts.problem`."""
        problems = self._gaps()
        content: files.FileContent | None = None
        properties: dict[str, str] | None = None
        try:
            content = files.read(self._config())
            properties = parse(content.data)
        except EosError as error:
            problems.insert(0, error.found)
        process = self._process()
        unreadable = Declared(None, problems[0] if problems else "", content.modified_at if content else None)
        return HostFacts(
            worker_id=self._worker.worker_id,
            config_path=self._worker.config,
            config_sha256=content.sha256 if content else None,
            config_modified_at=content.modified_at if content else None,
            properties=MappingProxyType(properties or {}),
            declared=unreadable if properties is None else self._declared(content, properties, process),
            running=self._running(process),
            process=process,
            problem="; ".join(problems) or None,
        )

    def unseen(self) -> HostFacts:
        """What can be told of the worker where its host cannot be seen: nothing."""
        why = "its host is not looked at from here"
        return HostFacts(
            worker_id=self._worker.worker_id,
            config_path=self._worker.config,
            config_sha256=None,
            config_modified_at=None,
            properties=MappingProxyType({}),
            declared=Declared(None, why, None),
            running=Running(None, why, None, None),
            process=None,
            problem=why,
        )

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        """SHA-256 that the worker's file would have with these properties set; None stands for taken away.

        :raises ConfigurationError: the file cannot be read or cannot be edited.
        """
        return files.digest(_with(files.read(self._config()).data, properties))

    def write_properties(self, properties: Mapping[str, str | None], *, expect_sha256: str) -> str:
        """Set properties of the worker's file; the bytes before stand in ``<file>.eos-backup`` (mode 0600).

        :param properties: their values; None takes a property away.
        :param expect_sha256: digest of the file as it was planned.
        :returns: SHA-256 of the file as it is now.
        :raises PlanMovedError: the file is not the one that was planned.
        :raises RefusedError: owner, group or permissions cannot be kept.
        :raises ConfigurationError: the file or its folder cannot be written, or a config provider supplies the value.
        """
        path = self._config()
        content = files.read(path)
        files.require(content, expect_sha256)
        data = _with(content.data, properties)
        if data != content.data:
            files.replace(path, data, expect_sha256=expect_sha256, backup=True)
        return files.digest(data)

    def restore(self, *, expect_sha256: str, original_sha256: str) -> None:
        """Put the file back as it was before :meth:`write_properties`. Nothing happens if it is so already.

        :param expect_sha256: digest of the file as it was written.
        :param original_sha256: digest of the file as it shall be again.
        :raises PlanMovedError: somebody has edited the file since.
        :raises RefusedError: the backup is gone or holds other bytes.
        """
        path = self._config()
        if files.read(path).sha256 == original_sha256:
            return
        data = files.backup_of(path, original_sha256)
        files.replace(path, data, expect_sha256=expect_sha256, backup=False)

    def restart(
        self,
        *,
        stop_grace_seconds: float = 60.0,
        on_event: Callable[[str], None] = lambda _event: None,
        permit: Permit = lambda _act: None,
    ) -> ProcessIdentity:
        """Stop the worker's process, if it has one, and start a new one.

        :param stop_grace_seconds: how long it may take to stop by itself before it is killed.
        :param on_event: told in words what happens.
        :param permit: asked right before the stop, and before a start that does not follow it at once; what it raises
            is raised.
        :returns: the new process.
        :raises ConfigurationError: the worker cannot be started; found out before anything is stopped.
        :raises RefusedError: a process that is not known as this worker's holds its pid file or its port.
        :raises WorkerStartError: the new process ended at once.
        """
        self._require_startable()
        ended_at = self.stop(stop_grace_seconds=stop_grace_seconds, on_event=on_event, permit=permit)
        if ended_at is not None and time.monotonic() - ended_at < IN_ONE_GO_SECONDS:
            # What was stopped a moment ago is started, whatever has come between: one restart too many harms less than
            # a worker that stays down.
            return self.start(on_event=on_event)
        return self.start(on_event=on_event, permit=permit)

    def stop(
        self,
        *,
        stop_grace_seconds: float = 60.0,
        on_event: Callable[[str], None] = lambda _event: None,
        permit: Permit = lambda _act: None,
    ) -> float | None:
        """Stop the worker's process and whatever it has started, and wait until its port is free.

        :returns: when the process had ended, by the monotonic clock; None if there was none.
        :raises RefusedError: see :meth:`restart`.
        """
        process = self._process()
        ended_at = None
        if process is not None:
            if not worker_process.belongs_to(process, self._worker):
                raise RefusedError(
                    f"The pid file {self._worker.pid_file} names process {process.pid}, whose command line names "
                    f"neither {self._worker.config} nor the start command of {self._worker.worker_id}.",
                    remedy="Look what that process is, then correct pid_file, config or start.",
                )
            permit("stop")
            self._end(process, stop_grace_seconds, on_event)
            ended_at = time.monotonic()
        if not worker_process.wait_until_port_is_free(self._worker.url, PORT_FREE_SECONDS if process else 0.0):
            raise RefusedError(
                f"{self._worker.worker_id} is held by {worker_process.port_holder(self._worker.url)}, "
                f"which the pid file {self._worker.pid_file} does not name.",
                remedy="Look what that process is. If it is this worker, write its pid into the pid file.",
            )
        return ended_at

    def _end(self, process: ProcessIdentity, grace_seconds: float, on_event: Callable[[str], None]) -> None:
        on_event(f"stopping pid {process.pid}")
        # A wrapper that dies may leave its JVM behind, so what it has started is remembered before.
        for member in [process, *worker_process.descendants(process)]:
            try:
                ended = member.stop(grace_seconds=grace_seconds)
            except psutil.AccessDenied as error:
                raise RefusedError(
                    f"Process {member.pid} of {self._worker.worker_id} may not be stopped by this user.",
                    remedy="Run this as the user who runs the worker.",
                ) from error
            if member.is_alive():
                raise RefusedError(
                    f"Process {member.pid} of {self._worker.worker_id} does not end, not even by SIGKILL.",
                    remedy="Look what it waits for (a disk that hangs, mostly).",
                )
            if not ended:
                on_event(f"pid {member.pid} did not stop within {grace_seconds:g} s and was killed")

    def start(
        self, *, on_event: Callable[[str], None] = lambda _event: None, permit: Permit = lambda _act: None
    ) -> ProcessIdentity:
        """Start the worker by its start command.

        :returns: the process, alive and through its first seconds.
        :raises ConfigurationError: there is no start command, or it cannot be run.
        :raises RefusedError: the worker runs already.
        :raises WorkerStartError: the process ended at once.
        """
        log, pid_file = self._require_startable()
        running = self._process()
        if running is not None:
            raise RefusedError(f"{self._worker.worker_id} runs already (pid {running.pid}).")
        self._let_the_clock_tick()
        written_before = log.stat().st_size if log.exists() else 0
        permit("start")
        try:
            identity = processes.spawn(
                self._worker.start, log=log, pid_file=pid_file, cwd=self._worker.cwd, env=self._worker.env
            )
        except OSError as error:
            raise ConfigurationError(
                f"The start command of {self._worker.worker_id} cannot be run: {error.strerror}.",
                remedy="Correct 'start', 'cwd', 'log' or 'pid_file' in the cluster description.",
            ) from error
        on_event(f"started as pid {identity.pid}")
        self._require_survival(identity, log, written_before)
        return identity

    def _let_the_clock_tick(self) -> None:
        """A process that starts in the same tick as its file was written could not be told from one that is older."""
        age = time.time() - files.read(self._config()).changed_at
        time.sleep(max(0.0, min(CLOCK_TICK_SECONDS, CLOCK_TICK_SECONDS - age)))

    def _require_survival(self, identity: ProcessIdentity, log: Path, written_before: int) -> None:
        """Wait until the worker listens, or has lived through its first seconds; what comes later is the gate's."""
        deadline = time.monotonic() + EARLY_END_SECONDS
        while time.monotonic() < deadline:
            if not identity.is_alive():
                output = tail(log, written_before, secrets=self._secret_values())
                raise WorkerStartError(
                    f"{self._worker.worker_id} (pid {identity.pid}) ended right after its start. Its log:\n{output}",
                    remedy=f"Correct what the log complains of ({log}).",
                )
            if worker_process.is_listening(self._worker.url):
                return
            time.sleep(0.1)

    def _require_startable(self) -> tuple[Path, Path]:
        gaps = self._gaps()
        if gaps or self._worker.log is None or self._worker.pid_file is None:
            raise ConfigurationError(
                f"{self._worker.worker_id} cannot be started: {'; '.join(gaps)}.",
                remedy="Complete the worker in the cluster description.",
            )
        return self._worker.log, self._worker.pid_file

    def _gaps(self) -> list[str]:
        """What the description lacks for a roll, in words."""
        worker = self._worker
        gaps = [f"it has no '{name}'" for name in ("config", "log", "pid_file", "start") if not getattr(worker, name)]
        if worker.cwd is not None and not worker.cwd.is_dir():
            gaps.append(f"its working folder {worker.cwd} does not exist")
        elif worker.start and not _is_program(worker):
            gaps.append(f"its start command names no program that can be run ({worker.start[0]})")
        return gaps

    def _config(self) -> Path:
        if self._worker.config is None:
            raise ConfigurationError(
                f"The cluster description has no 'config' for {self._worker.worker_id}.",
                remedy="Name the worker's properties file.",
            )
        return self._worker.config

    def _process(self) -> ProcessIdentity | None:
        """The worker's live process: the one that the pid file names, else the one of its very start command."""
        pid_file = self._worker.pid_file
        if pid_file is None:
            return None
        try:
            named = processes.from_pid_file(pid_file)
        except OSError:  # unreadable: said by _running
            named = None
        return named or worker_process.find(self._worker)

    def _declared(
        self,
        content: files.FileContent | None,
        properties: Mapping[str, str],
        process: ProcessIdentity | None,
    ) -> Declared:
        def variable(name: str) -> str | None:
            if process is None:  # stopped: what the start command would be given
                return self._worker.env.get(name)
            return worker_process.variable(worker_process.java_of(process, self._worker), name)

        return declare(
            properties,
            modified_at=content.modified_at if content else None,
            changed_at=content.changed_at if content else None,
            variable=variable,
        )

    def _running(self, process: ProcessIdentity | None) -> Running:
        worker = self._worker
        if process is None:
            if worker.pid_file is None:
                return Running(None, "its process is not known: the description has no pid_file", None, None)
            if worker.pid_file.exists() and not os.access(worker.pid_file, os.R_OK):
                return Running(None, f"its pid file {worker.pid_file} cannot be read", None, None)
            if worker_process.is_listening(worker.url):
                holder = worker_process.port_holder(worker.url)
                detail = f"{worker.pid_file} names no live process, but its port is held by {holder}"
                return Running(None, detail, None, None)
            return Running(None, f"{worker.pid_file} names no live process", None, alive=False)
        java = worker_process.java_of(process, worker)
        started_at = worker_process.started_at(java)
        startup = self._startup_of(java, started_at)
        return Running(
            mode=startup.mode,
            detail=startup.detail,
            started_at=started_at,
            alive=True,
            reads_file=worker_process.names_file(java, worker),
        )

    def _startup_of(self, java: ProcessIdentity, started_at: float) -> StartupLog:
        """What the process printed at its start. It prints it once, so an answer holds for as long as it lives."""
        if self._startup is not None and self._startup[0] == java:
            return self._startup[1]
        if self._worker.log is None:
            return StartupLog(None, "the description has no log")
        found = mode_from_startup_log(self._worker.log, started_at, zone=worker_process.time_zone(java))
        if found.mode is not None or time.time() > started_at + STARTUP_SECONDS:
            self._startup = (java, found)
        return found

    def _secret_values(self) -> tuple[str, ...]:
        try:
            properties = parse(files.read(self._config()).data)
        except EosError:
            properties = {}
        return worker_process.secret_values({**properties, **self._worker.env})


def _with(data: bytes, properties: Mapping[str, str | None]) -> bytes:
    for name, value in properties.items():
        data = remove_property(data, name) if value is None else set_property(data, name, value)
    return data


def _is_program(worker: WorkerDescription) -> bool:
    """Whether the first word of the start command can be run, from the worker's working folder."""
    program = worker.start[0]
    if "/" in program and not Path(program).is_absolute() and worker.cwd is not None:
        program = str(worker.cwd / program)
    return shutil.which(program, path=worker.env.get("PATH")) is not None
