"""What the operating system knows about a worker's process and its port."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psutil

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster import WorkerDescription
from airflow_eos_provider.kafka.config import is_secret
from airflow_eos_provider.processes import ProcessIdentity

_CONNECT_SECONDS = 1.0


def started_at(process: ProcessIdentity) -> float:
    """The start of a process, seconds since the epoch, true to 10 ms.

    :attr:`ProcessIdentity.started_at` rests on a boot time in whole seconds: enough to tell processes apart, not to
    tell whether a file was changed before or after.
    """
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[19])  # starttime, the 22nd of all (proc(5))
    except (OSError, ValueError, IndexError):
        return process.started_at
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")


def descendants(process: ProcessIdentity) -> list[ProcessIdentity]:
    """The processes that a process has started, and theirs."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []
    found = [processes.identify(child.pid) for child in children]
    return [child for child in found if child is not None]


def java_of(process: ProcessIdentity, worker: WorkerDescription) -> ProcessIdentity:
    """The process that reads the worker's file: the one of the pid file, or what that one (a wrapper) has started."""
    family = [process, *descendants(process)]
    readers = [member for member in family if names_file(member, worker)]
    return readers[-1] if readers else process


def names_file(process: ProcessIdentity, worker: WorkerDescription) -> bool | None:
    """Whether the process's command line names the worker's file; None if it cannot be read."""
    words = process.command_line()
    if not words or worker.config is None:
        return None
    config = worker.config.absolute()
    folder = _folder(process) or worker.cwd
    for word in words:
        if word == str(worker.config) or word == str(config):
            return True
        if not word.endswith(config.suffix) or len(word) > 4096:
            continue
        path = folder / word if folder is not None else Path(word)
        if path.is_absolute() and os.path.realpath(path) == os.path.realpath(config):
            return True
    return False


def belongs_to(process: ProcessIdentity, worker: WorkerDescription) -> bool:
    """Whether a process, or one that it has started, was started with the worker's file or start command."""
    for member in [process, *descendants(process)]:
        if names_file(member, worker) or tuple(member.command_line()) == worker.start:
            return True
    return False


def find(worker: WorkerDescription) -> ProcessIdentity | None:
    """The process whose command line is the worker's start command, word for word, with the worker's own file in it.

    Finds a worker whose pid file is stale: restarted by hand, or by a rollout that was killed before it could write it.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if tuple(process.cmdline()) == worker.start:
                found.append(processes.identify(process.pid))
        except psutil.Error:
            continue
    named = [identity for identity in found if identity is not None and names_file(identity, worker)]
    return named[0] if len(named) == 1 else None


def variable(process: ProcessIdentity, name: str) -> str | None:
    """One variable of a process's environment; None if it is not set or may not be read."""
    try:
        return psutil.Process(process.pid).environ().get(name)
    except (psutil.Error, OSError):
        return None


def time_zone(process: ProcessIdentity) -> tzinfo | None:
    """The zone in which a JVM writes its dates, if it differs from this machine's."""
    words = process.command_line()
    named = [word.partition("=")[2] for word in words if word.startswith("-Duser.timezone=")]
    zone = named[-1] if named else variable(process, "TZ")
    try:
        return ZoneInfo(zone.removeprefix(":")) if zone else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_listening(url: str) -> bool:
    """Whether something accepts connections at the worker's REST address."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def wait_until_port_is_free(url: str, seconds: float) -> bool:
    """Wait until nothing accepts connections at the worker's REST address; False if something still does."""
    deadline = time.monotonic() + seconds
    while is_listening(url):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def port_holder(url: str) -> str:
    """In words, which process listens at the worker's port."""
    port = urlsplit(url).port
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        connections = []
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return f"process {connection.pid}" if connection.pid else "a process of another user"
    return "another process"


def secret_values(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown: of settings and variables whose name speaks of a secret."""
    return tuple(value for name, value in settings.items() if value and is_secret(name.replace("_", ".")))


def _folder(process: ProcessIdentity) -> Path | None:
    try:
        return Path(psutil.Process(process.pid).cwd())
    except (psutil.Error, OSError):
        return None
