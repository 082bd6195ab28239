"""What can be found out about a worker that runs on this machine, from nothing but its REST address."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil


@dataclass(frozen=True, slots=True)
class LocalWorker:
    """One worker process of this machine.

    :param command: its command line.
    :param config: its properties file: the last argument that names one.
    :param log: the file that its standard output goes to, if it is a file.
    :param pid_file: a ``*.pid`` file beside its config or log, or in its folder, that holds its pid.
    """

    pid: int
    command: tuple[str, ...]
    cwd: Path | None
    config: Path | None
    log: Path | None
    pid_file: Path | None


def find_local_worker(url: str) -> LocalWorker | None:
    """The process of this machine that listens on the address of ``url``; None if there is none that may be seen."""
    pid = listening_pid(url)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        command = tuple(process.cmdline())
        cwd = Path(process.cwd())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    config = next((_absolute(arg, cwd) for arg in reversed(command) if arg.endswith(".properties")), None)
    log = _standard_output(pid)
    folders = {folder for folder in (config and config.parent, log and log.parent, cwd) if folder}
    return LocalWorker(pid, command, cwd, config, log, _pid_file(pid, folders))


def listening_pid(url: str) -> int | None:
    """Which process of this machine listens on the port of ``url``, if its host is this machine."""
    parts = urlsplit(url)
    if parts.hostname is None or not _is_this_machine(parts.hostname):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return connection.pid
    return None


def _is_this_machine(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    return any(ipaddress.ip_address(str(a).partition("%")[0]).is_loopback or a in own for a in addresses)


def _absolute(text: str, cwd: Path) -> Path:
    path = Path(text)
    return path if path.is_absolute() else cwd / path


def _standard_output(pid: int) -> Path | None:
    try:
        target = Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None
    return target if target.is_file() and target.is_absolute() else None


def _pid_file(pid: int, folders: set[Path]) -> Path | None:
    for folder in sorted(folders):
        for candidate in sorted(folder.glob("*.pid")):
            try:
                if candidate.read_text(encoding="ascii").strip() == str(pid):
                    return candidate
            except (OSError, UnicodeDecodeError):
                continue
    return None
