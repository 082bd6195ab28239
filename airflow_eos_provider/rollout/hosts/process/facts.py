"""What this machine reports of one worker that runs as a process of it: properties file, process, start-up log."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode_evidence import Declared, Running, declare
from airflow_eos_provider.connect.properties import followed, read
from airflow_eos_provider.connect.startup_log import STARTUP_SECONDS, StartupLog, mode_from_startup_log
from airflow_eos_provider.connect.topics.internal_topics import SHARED
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.process_start import ProcessStart
from airflow_eos_provider.processes import ProcessIdentity
from airflow_eos_provider.redaction import remember
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, Edit, HostFacts, Obstacle, StartToken
from airflow_eos_provider.rollout.hosts.launch import how_to_start, launch_of
from airflow_eos_provider.rollout.hosts.ownership import own_address, user_name
from airflow_eos_provider.rollout.hosts.process import files, restart_act, worker_process
from airflow_eos_provider.rollout.hosts.process.discovery import suspended_pid
from airflow_eos_provider.rollout.hosts.process.restart_act import RestartRecord
from airflow_eos_provider.rollout.hosts.restart_event import RestartEvent, moments_of

#: Option of ``connect-distributed.sh`` to end at once and let the worker run on.
_DAEMON = "-daemon"

_WRITABLE = "let this user write it, or run this as the user who runs the worker"


@dataclass(frozen=True, slots=True)
class ProcessFacts(HostFacts):
    """The facts of a worker that is a process of this machine.

    :param process: its live process: the one that the pid file names, or one that runs its very start command.
    """

    process: ProcessIdentity | None = None


class FactGatherer:
    """Gathers the facts of one worker.

    :param worker: its description.
    """

    def __init__(self, worker: WorkerDescription) -> None:
        self._worker = worker
        self._startup: tuple[ProcessIdentity, StartupLog] | None = None
        self._listeners = worker_process.Listeners()

    def gather(self) -> ProcessFacts:
        """File and process as they are now. Never raises for what it finds."""
        worker = self._worker
        problems = gaps(worker)
        content: files.FileContent | None = None
        properties: dict[str, str] | None = None
        try:
            content = files.read(config_of(worker))
            properties = read(content.data)
            remember(properties)
        except EosError as error:
            problems.insert(0, error.found)
        process = live_process(worker)
        family = process.family() if process else []
        java = worker_process.java_of(family, worker) if family else None
        address = own_address(worker.url, properties or {})
        running = self._running(java, address)
        record = restart_act.read_record(restart_act.record_path(worker.pid_file)) if worker.pid_file else None
        unreadable = Declared(None, problems[0] if problems else "", content.modified_at if content else None)
        return ProcessFacts(
            worker_id=worker.worker_id,
            edit=Edit(os.path.realpath(worker.config) if worker.config else ""),
            digest=content.sha256 if content else None,
            properties=MappingProxyType(followed(properties or {}, SHARED, _variables(worker, java))),
            declared=unreadable if properties is None else _declared(worker, content, properties, java),
            running=running,
            is_running=process is not None,
            started_at=(running.started_at or process.started_at) if process else None,
            start_token=start_token(java),
            runs_as=f"pid {process.pid}" if process else "",
            details={"pid": process.pid if process else None},
            problem="; ".join(problems) or None,
            obstacles=self._obstacles(family, address),
            restart=_under_way(record),
            restarted=_restarted_by(record, process),
            launch=launch_of(worker),
            how_to_start=how_to_start(worker),
            log=str(worker.log or ""),
            mode_remedy=_mode_remedy(worker, running, process),
            process=process,
        )

    def unseen(self, why: str) -> ProcessFacts:
        """What the description alone shows; no file system is touched, for it may be what hangs."""
        worker = self._worker
        return ProcessFacts(
            worker_id=worker.worker_id,
            edit=Edit(str(worker.config or "")),
            digest=None,
            declared=Declared(None, why, None),
            running=Running(None, why, None, None),
            details={"pid": None},
            problem=why,
            mode_remedy=f"{why}: make that possible, for its mode is proven there",
            launch=launch_of(worker),
            how_to_start=how_to_start(worker),
            log=str(worker.log or ""),
        )

    def _obstacles(self, family: Sequence[ProcessIdentity], address: str) -> tuple[Obstacle, ...]:
        """What stands against a restart or a change, found without touching anything."""
        worker = self._worker
        found = list(worker_process.obstacles(family, worker, address, self._listeners)) if family else []
        found += _unwritable(worker)
        with contextlib.suppress(EosError):  # unreadable or not described: said as a problem
            change = files.obstacle_to_change(config_of(worker))
            found += [change] if change else []
        suspended = suspended_pid(family)
        if suspended is not None:
            what = f"its process {suspended} is suspended (SIGSTOP)"
            found.append(Obstacle("answer", what, f"continue it: kill -CONT {suspended}"))
        return tuple(found)

    def _running(self, java: ProcessIdentity | None, address: str) -> Running:
        worker = self._worker
        if java is None:
            if worker.pid_file is None:
                return Running(None, "its process is not known: the description has no pid_file", None, None)
            if worker.pid_file.exists() and not os.access(worker.pid_file, os.R_OK):
                return Running(None, f"its pid file {worker.pid_file} cannot be read", None, None)
            if worker_process.is_listening(address):
                holder = worker_process.port_holder(address)
                detail = f"{worker.pid_file} names no live process, but its port is held by {holder}"
                return Running(None, detail, None, None)
            return Running(None, f"{worker.pid_file} names no live process", None, alive=False)
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


def gaps(worker: WorkerDescription) -> list[str]:
    """What the description lacks for a roll, in words."""
    found = [f"it has no '{name}'" for name in ("config", "log", "pid_file", "start") if not getattr(worker, name)]
    if worker.cwd is not None and not worker.cwd.is_dir():
        found.append(f"its working folder {worker.cwd} does not exist")
    elif worker.start and not _is_program(worker):
        found.append(f"its start command names no program that can be run ({worker.start[0]})")
    if _DAEMON in worker.start:
        found.append(f"its start command leaves the worker to itself ({_DAEMON}), so nobody knows its process")
    return found


def config_of(worker: WorkerDescription) -> Path:
    """The worker's properties file.

    :raises ConfigurationError: the description names none.
    """
    if worker.config is None:
        raise ConfigurationError(
            f"The cluster description has no 'config' for {worker.worker_id}.",
            remedy="Name the worker's properties file.",
        )
    return worker.config


def live_process(worker: WorkerDescription) -> ProcessIdentity | None:
    """The worker's live process: the one that the pid file names, else the one of its very start command."""
    pid_file = worker.pid_file
    if pid_file is None:
        return None
    try:
        named = processes.from_pid_file(pid_file)
    except OSError:  # unreadable: the running mode's detail says so
        named = None
    return named or worker_process.find(worker)


def start_token(java: ProcessIdentity | None) -> StartToken:
    """Names the start of the process that reads the worker's file."""
    start = ProcessStart.of(java.pid) if java else None
    return StartToken(str(start)) if start else NOT_RUNNING


def _declared(
    worker: WorkerDescription,
    content: files.FileContent | None,
    properties: Mapping[str, str],
    java: ProcessIdentity | None,
) -> Declared:
    return declare(
        properties,
        modified_at=content.modified_at if content else None,
        changed_at=content.changed_at if content else None,
        variable=_variables(worker, java),
    )


def _variables(worker: WorkerDescription, java: ProcessIdentity | None) -> Callable[[str], str | None]:
    """Looks up variables of the worker's process; of a stopped one what the start command would be given."""
    return worker.env.get if java is None else partial(worker_process.variable, java)


def _under_way(record: RestartRecord | None) -> str | None:
    if record is None or not record.is_in_flight:
        return None
    return f"a restart{f' of rollout {record.key.rollout}' if record.key.rollout else ''} is {record.phase}"


def _restarted_by(record: RestartRecord | None, process: ProcessIdentity | None) -> tuple[RestartEvent, ...]:
    is_its = record is not None and process is not None and record.process == str(ProcessStart.of(process.pid))
    return moments_of(record.events) if record is not None and is_its else ()


def _mode_remedy(worker: WorkerDescription, running: Running, process: ProcessIdentity | None) -> str:
    if process is None:
        return "complete config, log and pid_file in the cluster file: its process is not known without them"
    if worker.log is None:
        return "name its log in the cluster file: what it writes at its start proves the mode"
    if running.reads_file is False:
        return f"correct 'config' in the cluster file: its process was not started with {worker.config}"
    return ""


def _unwritable(worker: WorkerDescription) -> list[Obstacle]:
    """What a restart writes and this user may not: the log, the pid file, and the record beside the pid file."""
    files_to_write = [path for path in (worker.log, worker.pid_file) if path is not None and path.exists()]
    folders = {path.parent for path in (worker.log, worker.pid_file) if path is not None and not path.exists()}
    folders |= {worker.pid_file.parent} if worker.pid_file else set()
    wanted = [(path, os.W_OK) for path in files_to_write]
    wanted += [(folder, os.W_OK | os.X_OK) for folder in sorted(folders) if folder.is_dir()]
    refused = [path for path, access in wanted if not files.may(path, access)]
    return [
        Obstacle("restart", f"{path} may not be written by {user_name(os.geteuid())}", _WRITABLE) for path in refused
    ]


def _is_program(worker: WorkerDescription) -> bool:
    """Whether the first word of the start command can be run, from the worker's working folder."""
    program = worker.start[0]
    if "/" in program and not Path(program).is_absolute() and worker.cwd is not None:
        program = str(worker.cwd / program)
    return shutil.which(program, path=worker.env.get("PATH")) is not None
