"""Who owns a worker's process: may it be stopped and started from here, or does another user, parent, unit or container
own it?

A worker that something else also starts would run twice, and another user's worker would come back as ours. Both are
detected before anything is stopped. :func:`look` reads ``/proc``; :func:`obstacles` decides, from values alone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_eos_provider.rollout.hosts.address import port_of
from airflow_eos_provider.rollout.hosts.beside_unit import unit_of
from airflow_eos_provider.rollout.hosts.host import Obstacle

#: Programs that start again what ends below them, whatever its session.
SUPERVISORS = frozenset(
    {
        "supervisord",
        "runsv",
        "s6-supervise",
        "supervise",
        "perpd",
        "monit",
        "circusd",
        "god",
        "pm2",
        "forever",
        "nodemon",
        "nosh",
        "immortal",
        "mon",
    }
)

#: Programs that take in orphans and start nothing again. Another process with pid 1 is taken for one, too.
REAPERS = frozenset({"systemd", "init", "tini", "dumb-init", "catatonit", "docker-init", "launchd", "conmon"})

#: A shell that waits for a process of another session does not do so for a person at a terminal.
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"})

#: Components of a cgroup's path that speak of a container.
_CONTAINER_MARKS = ("docker", "libpod", "kubepods", "containerd", "cri-", "crio", "lxc", "machine.slice")

_NAMESPACES = {"pid": "process", "mnt": "mount"}

#: The class that a distributed worker runs; distributions with one of their own keep its last part.
WORKER_CLASS = "ConnectDistributed"

_LISTENER = re.compile(r"://([^:/,\s]*|\[[^\]]*\]):(\d{1,5})\s*(?=,|$)")
_PORT_SETTINGS = ("rest.advertised.port", "rest.port")


@dataclass(frozen=True, slots=True)
class ProcessView:
    """What is to be known of one process to tell whose it is."""

    pid: int
    name: str  #: name of its program, as the kernel has it (``comm``)
    uid: int  #: its effective user
    parent: int
    session: int  #: its session; the pid of the process that began it
    cgroups: tuple[str, ...] = ()  #: paths of its control groups
    #: ``pid`` and ``mnt``; one that may not be read is missing.
    namespaces: Mapping[str, str] = field(default_factory=dict)
    user: str = ""  #: the user's name, on its machine; empty for what this machine calls it

    line: tuple[str, ...] = field(default=(), repr=False)  #: its words, where they were asked for

    @property
    def unit(self) -> str | None:
        """The systemd service that it runs in; None if none, or one that people work in."""
        return unit_of(self.cgroups)

    @property
    def container(self) -> str | None:
        """The component of its control group that speaks of a container."""
        parts = [part for path in self.cgroups for part in path.split("/")]
        return next((part for part in parts if part.startswith(_CONTAINER_MARKS)), None)


def names_worker(command: Sequence[str]) -> bool:
    """Whether a command line names the class of a distributed worker, as a word of its own."""
    return any(word.rpartition(".")[2] == WORKER_CLASS for word in command)


def ports_of(settings: Mapping[str, str]) -> set[int]:
    """The ports that a worker's file names: of its listeners, and the advertised one."""
    named = {int(settings[name]) for name in _PORT_SETTINGS if settings.get(name, "").isdecimal()}
    return named | {int(port) for _, port in _LISTENER.findall(settings.get("listeners", ""))}


def own_address(url: str, properties: Mapping[str, str]) -> str:
    """The address at which a worker itself listens: behind a proxy it is not the one that it advertises."""
    advertised = port_of(url)
    default = f"http://:{properties.get('rest.port', '8083')}" if "rest.advertised.port" in properties else ""
    own = _LISTENER.findall(properties.get("listeners") or default)
    if not own or any(int(port) == advertised for _, port in own):
        return url
    host, port = own[0]
    return f"http://{host if host not in ('', '0.0.0.0') else '127.0.0.1'}:{port}"


def view_of(stat: bytes, status: str, cgroup: str, line: Sequence[str] = ()) -> ProcessView | None:
    """A process from its files in ``/proc``; the status may also name user and namespaces. None if it has ended."""
    fields = stat.rpartition(b")")[2].split()
    said = {key: value.strip() for key, _, value in (each.partition(":") for each in status.splitlines())}
    uids = said.get("Uid", "").split()
    if len(fields) < 4 or len(uids) < 2:
        return None
    return ProcessView(
        pid=int(stat.partition(b" ")[0]),
        name=stat.partition(b"(")[2].rpartition(b")")[0].decode(errors="replace"),
        uid=int(uids[1]),
        parent=int(fields[1]),
        session=int(fields[3]),
        cgroups=tuple(each.split(":", 2)[2] for each in cgroup.splitlines() if each.count(":") >= 2),
        namespaces={kind: said[kind] for kind in _NAMESPACES if kind in said},
        user=said.get("User", ""),
        line=tuple(line),
    )


def look(pid: int) -> ProcessView | None:
    """A process as it is now; None if there is none."""
    folder = Path(f"/proc/{pid}")
    try:
        stat, cgroup = (folder / "stat").read_bytes(), (folder / "cgroup").read_text(errors="replace")
        status = (folder / "status").read_text(errors="replace")
    except OSError:
        return None
    for kind in _NAMESPACES:
        with contextlib.suppress(OSError):
            status += f"{kind}: {(folder / 'ns' / kind).readlink()}\n"
    return view_of(stat, status, cgroup)


def ancestors(pid: int) -> frozenset[int]:
    """The pids above a process, up to the first."""
    found: set[int] = set()
    view = look(pid)
    while view is not None and view.parent > 0 and view.parent not in found:
        found.add(view.parent)
        view = look(view.parent)
    return frozenset(found)


def obstacles(
    top: ProcessView, parent: ProcessView | None, here: ProcessView, above: frozenset[int]
) -> tuple[Obstacle, ...]:
    """Why this worker may not be restarted from here; empty if it may."""
    reasons = (_of_user(top, here), _of_container(top, here), _of_unit(top, here), _of_parent(top, parent, above))
    return tuple(Obstacle("restart", what, remedy) for what, remedy in filter(None, reasons))


def _of_user(top: ProcessView, here: ProcessView) -> tuple[str, str] | None:
    if top.uid == here.uid:
        return None
    theirs, ours = top.user or user_name(top.uid), here.user or user_name(here.uid)
    return (
        f"pid {top.pid} runs as {theirs} (uid {top.uid}) and this is {ours} (uid {here.uid}): started from here, "
        f"the worker would run as {ours}",
        f"run this as {theirs}",
    )


def _of_container(top: ProcessView, here: ProcessView) -> tuple[str, str] | None:
    remedy = "run this within that container, or restart the worker by what manages it"
    for name, word in _NAMESPACES.items():
        theirs, ours = top.namespaces.get(name), here.namespaces.get(name)
        if theirs and ours and theirs != ours:
            return (
                f"pid {top.pid} runs in another {word} namespace (a container, or a unit with folders of its own): "
                "started from here, the worker would run outside of it",
                remedy,
            )
    if top.container is not None and top.container != here.container:
        return (f"pid {top.pid} belongs to the container {top.container[:40]}", remedy)
    return None


def _of_unit(top: ProcessView, here: ProcessView) -> tuple[str, str] | None:
    if top.unit is None or top.unit == here.unit:
        return None
    return (
        f"pid {top.pid} belongs to the systemd unit {top.unit}: systemd may start it again, and a worker started from "
        "here would be a second one, outside of the unit",
        f"describe it as a unit: service: {{systemd: {top.unit.removesuffix('.service')}}}",
    )


def _of_parent(top: ProcessView, parent: ProcessView | None, above: frozenset[int]) -> tuple[str, str] | None:
    if parent is None:
        return None
    found = (
        f"pid {top.pid} was started by pid {parent.pid} ({parent.name}), which still runs and may start it again: "
        "there would be two",
        "end what supervises it and start the worker on its own (setsid, or connect-distributed.sh -daemon); if "
        f"pid {parent.pid} is the worker's own start script, write the call of that script into 'start'",
    )
    if parent.name in SUPERVISORS:
        return found
    if parent.pid == 1 or parent.name in REAPERS or parent.pid in above:
        return None
    is_detached = top.session == top.pid and parent.name not in SHELLS
    return None if is_detached else found


def user_name(uid: int) -> str:
    """The name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def own_view() -> tuple[ProcessView | None, frozenset[int]]:
    """This process, and the pids of it and of what is above it."""
    pid = os.getpid()
    return look(pid), frozenset({pid}) | ancestors(pid)
