"""What the operating system knows about a worker's process and its port."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psutil

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.processes import ProcessIdentity
from airflow_eos_provider.redaction import secrets_of
from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.host import Obstacle

_CONNECT_SECONDS = 1.0

#: What a worker creates is readable for all, as by default of most systems; Airflow's own mask may be stricter.
_UMASK = 0o022

#: Programs that start scripts are written for.
_INTERPRETERS = (*sorted(ownership.SHELLS), "python", "perl", "ruby")

#: State of a listening socket in /proc/net/tcp (TCP_LISTEN, proc(5)).
_LISTEN = "0A"


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


def top_of(process: ProcessIdentity, worker: WorkerDescription) -> ProcessIdentity:
    """The first process of the worker's family: above the given one, as far as the worker's own start command goes.

    A start script that stays (it waits for the JVM, or starts it again) belongs to the worker, even where the pid file
    names the JVM.
    """
    top = process
    while (view := ownership.look(top.pid)) is not None and view.parent > 1:
        parent = processes.identify(view.parent)
        if parent is None or not _is_start_command(parent, worker):
            break
        top = parent
    return top


class Listeners:
    """The sockets that listen on a worker's port, looked for only when the worker has none of the known ones open.

    ``/proc/net/tcp`` costs milliseconds, for the kernel goes through all of its tables; a socket keeps its inode.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def are_of(self, family: Sequence[ProcessIdentity], url: str) -> bool:
        """Whether a process of the family listens there, or nobody does.

        A socket is another's only if it listened both before and after the family's sockets were read: a worker opens
        its port while it is looked at, or closes it.
        """
        if self._known & _sockets_of(family):
            return True
        before = _listening_sockets(url)
        opened = _sockets_of(family)
        others = before - opened
        self._known = before & opened
        return bool(self._known) or not others or others.isdisjoint(_listening_sockets(url))


def obstacles(
    family: Sequence[ProcessIdentity], worker: WorkerDescription, address: str, listeners: Listeners | None = None
) -> tuple[Obstacle, ...]:
    """Why this worker's process may not be stopped and started again from here; empty if it may.

    :param family: the process, and all that it has started.
    :param address: where it listens itself, see ``own_address``.
    :param listeners: of its port, for one who asks again and again.
    """
    here, above = ownership.own_view()
    top = ownership.look(top_of(family[0], worker).pid)
    if here is None or top is None:
        return ()
    found = ownership.obstacles(top, ownership.look(top.parent), here, above)
    return found or _of_signals(family) or _of_port(family, worker, address, listeners or Listeners())


def _of_signals(family: Sequence[ProcessIdentity]) -> tuple[Obstacle, ...]:
    for member in family:
        try:
            os.kill(member.pid, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            view = ownership.look(member.pid)
            owner = ownership.user_name(view.uid) if view else "another user"
            what = f"pid {member.pid}, which belongs to the worker, runs as {owner} and may not be stopped by this user"
            return (Obstacle("restart", what, "run this as a user who may stop it"),)
    return ()


def _of_port(
    family: Sequence[ProcessIdentity], worker: WorkerDescription, address: str, listeners: Listeners
) -> tuple[Obstacle, ...]:
    """The process of the pid file and the listener of the port must be of one family; else there are two workers."""
    if listeners.are_of(family, address):
        return ()
    what = (
        f"{worker.pid_file} names pid {family[0].pid}, but the worker's port is held by "
        f"{port_holder(address)}, which that one has not started: the worker runs twice, or the pid file is wrong"
    )
    remedy = (
        "if that is a proxy, let 'listeners' of its properties file name the worker's own port; else end what does not "
        "belong there, and write the worker's pid into its pid file"
    )
    return (Obstacle("restart", what, remedy),)


def _listening_sockets(url: str) -> set[str]:
    """Inodes of the TCP sockets of this network namespace that listen on a URL's port."""
    port = f"{port_of(url):04X}"
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and words[1].rpartition(":")[2] == port:
                found.add(f"socket:[{words[9]}]")
    return found


def _sockets_of(family: Sequence[ProcessIdentity]) -> set[str]:
    """What the processes have open, sockets by their inode."""
    found = set()
    for process in family:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    found.add(str(entry.readlink()))
    return found


def _is_start_command(process: ProcessIdentity, worker: WorkerDescription) -> bool:
    """Whether a process was started by the worker's start command; a script's interpreter may stand before it."""
    words = process.command_line()
    first = len(words) - len(worker.start)
    if not worker.start or first < 0 or tuple(words[first + 1 :]) != worker.start[1:]:
        return False
    # A script's command line is its interpreter, at most one option of that (execve(2)), and the script.
    by_interpreter = first == 1 or (first == 2 and words[1].startswith("-"))
    if first and not (by_interpreter and Path(words[0]).name.startswith(_INTERPRETERS)):
        return False
    return Path(words[first]).name == Path(worker.start[0]).name


def java_of(family: Sequence[ProcessIdentity], worker: WorkerDescription) -> ProcessIdentity:
    """The process that reads the worker's file: the one of the pid file, or what that one (a wrapper) has started.

    :param family: the process of the pid file, and all that it has started.
    """
    readers = [member for member in family if names_file(member, worker)]
    return readers[-1] if readers else family[0]


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
    for member in process.family():
        if names_file(member, worker) or tuple(member.command_line()) == worker.start:
            return True
    return False


def find(worker: WorkerDescription) -> ProcessIdentity | None:
    """The process whose command line is the worker's start command, word for word, with the worker's own file in it.

    Finds a worker whose pid file is stale: restarted manually, or by a rollout that was killed before it wrote it.
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


def port_of(url: str) -> int:
    """The port of a REST address."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def is_listening(url: str) -> bool:
    """Whether something accepts connections at the worker's REST address."""
    try:
        with socket.create_connection((urlsplit(url).hostname or "", port_of(url)), timeout=_CONNECT_SECONDS):
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
    port = port_of(url)
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        connections = []
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return f"process {connection.pid}" if connection.pid else "a process of another user"
    return "another process"


def umask_and_limits(process: ProcessIdentity | None) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """File mode mask and resource limits of a worker, for the process that replaces it.

    :returns: the mask (022 where none can be read), and by number of ``RLIMIT_…`` the soft and hard limit; none where
        they may not be read.
    """
    if process is None:
        return _UMASK, ()
    umask = _UMASK
    limits = []
    with contextlib.suppress(OSError, ValueError):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
        umask = next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), _UMASK)
    with contextlib.suppress(OSError, ValueError):
        for number in sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}):
            limits.append((number, *resource.prlimit(process.pid, number)))
    return umask, tuple(limits)


def secret_values(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown: of settings and variables whose name speaks of a secret."""
    return secrets_of(settings)


def _folder(process: ProcessIdentity) -> Path | None:
    try:
        return Path(psutil.Process(process.pid).cwd())
    except (psutil.Error, OSError):
        return None
