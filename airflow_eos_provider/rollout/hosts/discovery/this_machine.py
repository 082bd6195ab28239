"""Proposes the entry of a worker on this machine, from its REST address alone.

A roll has to work with the proposal unchanged: the process that listens, the script that started it, the file that has
its start-up lines. Secrets in command lines and values of variables are not copied.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from airflow_eos_provider.connect.properties import read
from airflow_eos_provider.connect.startup_log import mode_from_startup_log
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.kafka_settings import is_secret
from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.ownership import names_worker, ports_of

#: Shells, whose second word is the script that they run. Python's scripts are not among them: supervisors are such.
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})

#: Words before a list of jars, in which names like ``token.jar`` say nothing of secrets.
_CLASS_PATH = frozenset({"-cp", "-classpath", "--class-path"})

#: Variables that Kafka's start scripts look at.
_START_VARIABLES = re.compile(r"(KAFKA_|CONNECT_|LOG_DIR$|EXTRA_ARGS$|CLASSPATH$|JAVA_OPTS$)")

_GARBAGE_COLLECTION = re.compile(r"(^|[-_.])gc([-_.]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalWorker:
    """One worker process of this machine."""

    pid: int  #: its process: what listens on the port, or a worker behind it
    start_pid: int  #: the process of the start command: the script that still waits for the worker, else the worker
    start: tuple[str, ...]  #: that process's command line; empty if it holds a secret
    cwd: Path | None  #: its working folder
    config: Path | None  #: the worker's properties file: the last argument that names one
    log: Path | None  #: the file that its start-up lines are in, or may be
    #: a ``*.pid`` file beside its config, log or script, or in its folder, that holds one of these pids.
    pid_file: Path | None
    user: str  #: who runs it
    remarks: tuple[str, ...] = ()  #: what whoever completes the description should know


def find_local_worker(url: str, group_id: str) -> LocalWorker | None:
    """The worker of this machine that advertises ``url``; None if there is none that may be seen."""
    listener = listening_pid(url)
    if not is_on_this_machine(url):
        return None
    pid = listener if listener is not None and _is_worker(listener, group_id) else _behind(url, group_id)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        starter = _starter(process)
        command, cwd, user = tuple(process.cmdline()), Path(process.cwd()), process.username()
        start, start_cwd = tuple(starter.cmdline()), Path(starter.cwd())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    config = _config(command, cwd)
    log = _log(process)
    remarks = []
    if listener is not None and listener != pid:
        remarks.append(f"identified by the ports in its file: {not_a_worker(port_of(url), listener)}")
    secrets = secret_words(start)
    if secrets:
        remarks.append(without_start(secrets))
    elif starter.pid == pid:
        remarks.append("no script waits for it: start is the process's own command line")
    variables = sorted(name for name in _environment(starter) if _START_VARIABLES.match(name))
    if variables:
        remarks.append(started_with(variables))
    folders = {folder for folder in (config and config.parent, log and log.parent, cwd, start_cwd) if folder}
    folders |= {_absolute(word, start_cwd).parent for word in start[:2] if "/" in word}
    (me, above), top = ownership.own_view(), ownership.look(starter.pid)
    if me is not None and top is not None:
        found = ownership.obstacles(top, ownership.look(top.parent), me, above)
        remarks += [f"eos would refuse to restart it: {each.what} (what to do: {each.remedy})" for each in found]
    return LocalWorker(
        pid=pid,
        start_pid=starter.pid,
        start=() if secrets else start,
        cwd=start_cwd,
        config=config,
        log=log,
        pid_file=_pid_file({pid, starter.pid}, folders),
        user=user,
        remarks=tuple(remarks),
    )


def not_a_worker(port: int, pid: int, name: str = "") -> str:
    """In words: the process that has a port is not a worker."""
    if not name:
        with contextlib.suppress(psutil.Error):
            name = psutil.Process(pid).name()
    held_by = f"process {pid} ({name or '?'})"
    return f"port {port} is held by {held_by}, which is no Connect worker of this group; it may be a proxy"


def secret_words(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that may hold a secret, without their values."""
    found = []
    for before, word in zip(("", *command), command, strict=False):
        if before in _CLASS_PATH or (word.startswith("/") and "=" not in word):
            continue
        has_password = bool(re.search(r"://[^:/@\s]++:[^/@\s]++@", word))
        if has_password or is_secret(word.replace("_", ".")):
            found.append(
                word.partition("=")[0] if "=" in word else "an address with a password" if has_password else word
            )
    return tuple(found)


def without_start(secrets: Sequence[str]) -> str:
    """In words: why no start command is proposed."""
    return (
        f"its command line may contain a secret ({', '.join(secrets)}), so start is left out: write a start "
        "script that takes it from a file, restart the worker by it, and name the script"
    )


def started_with(variables: Iterable[str]) -> str:
    """In words: the variables that it may need."""
    return f"it was started with {', '.join(variables)}: add them as env unless start sets them itself"


def is_on_this_machine(url: str) -> bool:
    """Whether the host of ``url`` is this machine."""
    return _is_this_machine(urlsplit(url).hostname or "")


def is_same_port(url: str, other: str) -> bool:
    """Whether two REST addresses are one: the same port, of hosts that resolve to an address in common."""
    ports = {port_of(url), port_of(other)}
    hosts = [urlsplit(url).hostname, urlsplit(other).hostname]
    if len(ports) != 1 or not all(hosts):
        return False
    ours, theirs = (_addresses(host or "") for host in hosts)
    return bool(ours & theirs)


def listening_pid(url: str) -> int | None:
    """Which process of this machine listens at the address of ``url``, if its host is this machine."""
    parts = urlsplit(url)
    if parts.hostname is None or not _is_this_machine(parts.hostname):
        return None
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    wanted = _addresses(parts.hostname)
    port = port_of(url)
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            address = _address(connection.laddr.ip)
            if address.is_unspecified or address in wanted:
                return connection.pid
    return None


def _is_worker(pid: int, group_id: str) -> bool:
    """Whether a process is a worker of this group: by its class, or by the file that it is started with."""
    command, settings = _command_and_settings(pid)
    return names_worker(command) if settings is None else settings.get("group.id") == group_id


def _behind(url: str, group_id: str) -> int | None:
    """The one worker of this group whose file names the port of ``url``, whoever holds that port."""
    found = []
    for pid in psutil.pids():
        command, settings = _command_and_settings(pid)
        if names_worker(command) and settings and settings.get("group.id") == group_id:
            found += [pid] if port_of(url) in ports_of(settings) else []
    return found[0] if len(found) == 1 else None


def _command_and_settings(pid: int) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """The command line of a process, and what its properties file says; None if it names none that may be read."""
    command: Sequence[str] = ()
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        config = _config(command, Path(process.cwd()))
        return command, read(config.read_bytes()) if config is not None else None
    except (psutil.Error, OSError, ConfigurationError):
        return command, None


def _config(command: Sequence[str], cwd: Path) -> Path | None:
    words = [word for word in command if not word.startswith("-")]
    return next((_absolute(word, cwd) for word in reversed(words) if word.endswith(".properties")), None)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; Java's two-family sockets show an IPv4 one as ``::ffff:127.0.0.1``."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return {_address(str(info[4][0])) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def _is_this_machine(host: str) -> bool:
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    return any(address.is_loopback or str(address) in own for address in _addresses(host))


def _starter(process: psutil.Process) -> psutil.Process:
    """The process of the script that waits for this one, else the process itself.

    Kafka's own scripts give way to the worker (``exec``), so a script of its owner is its parent.
    """
    parent = process.parent()
    command = parent.cmdline() if parent is not None else []
    if parent is None or len(command) < 2 or Path(command[0]).name not in _SHELLS:
        return process
    script = command[1]
    return parent if not script.startswith("-") and _absolute(script, Path(parent.cwd())).is_file() else process


def _environment(process: psutil.Process) -> Iterable[str]:
    try:
        return tuple(process.environ())
    except (psutil.Error, OSError):
        return ()


def _absolute(text: str, cwd: Path) -> Path:
    path = Path(text)
    return path if path.is_absolute() else cwd / path


def _log(process: psutil.Process) -> Path | None:
    """The file with the start-up lines among those that the process writes; where none has them, the likeliest."""
    standard_output = _standard_output(process.pid)
    logs = [p for p in _written_files(process.pid) if p.suffix == ".log" and not _GARBAGE_COLLECTION.search(p.stem)]
    candidates = list(dict.fromkeys([*sorted(logs), *([standard_output] if standard_output else [])]))
    for candidate in candidates:
        if mode_from_startup_log(candidate, process.create_time()).mode is not None:
            return candidate
    return candidates[0] if candidates else None


def _written_files(pid: int) -> Iterator[Path]:
    """Ordinary files that a process has open for writing."""
    try:
        descriptors = [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = Path(f"/proc/{pid}/fd/{descriptor}").readlink()
            flags = re.search(r"^flags:\s*([0-7]+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text("ascii"), re.M)
            if target.is_absolute() and target.is_file() and flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                yield target
        except OSError:  # closed meanwhile
            continue


def _standard_output(pid: int) -> Path | None:
    try:
        target = Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None
    return target if target.is_file() and target.is_absolute() else None


def _pid_file(pids: set[int], folders: set[Path]) -> Path | None:
    for folder in sorted(folders):
        for candidate in sorted(folder.glob("*.pid")):
            try:
                if int(candidate.read_text(encoding="ascii").strip()) in pids:
                    return candidate
            except (OSError, ValueError):
                continue
    return None
