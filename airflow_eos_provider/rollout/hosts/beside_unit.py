"""Runs a command outside of this process's systemd unit, so that it outlives that unit.

When systemd stops a unit, it ends every process in the unit's cgroup, even in another session. A separate scope
survives.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: How systemd of this user is found.
SYSTEMD_VARIABLES = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")

#: There where systemd has booted the machine (sd_booted(3)).
_SYSTEMD = Path("/run/systemd/system")

#: Units that people and jobs work in; what is left running there is not restarted by them.
_LOGIN_UNITS = frozenset(
    {"user", "ssh", "sshd", "dropbear", "cron", "crond", "anacron", "atd", "getty", "serial-getty"}
)


@dataclass(frozen=True, slots=True)
class Way:
    command: tuple[str, ...]  #: the command, with what it is started by
    warning: str = ""  #: in words, what this way does not protect from; empty if nothing


def unit_of(cgroups: Iterable[str]) -> str | None:
    """The systemd service that a process of these control groups runs in; None if none, or one that people work in."""
    for path in cgroups:
        for part in reversed(path.split("/")):
            if part.endswith(".service") and part.removesuffix(".service").partition("@")[0] not in _LOGIN_UNITS:
                return part
    return None


def ways(command: tuple[str, ...], own_unit: str | None, *, systemd_run: str | None, is_root: bool) -> tuple[Way, ...]:
    """The ways to start a command, the best first; try each only if the one before has begun nothing."""
    if own_unit is None:
        return (Way(command),)
    within = Way(
        command,
        f"the restart stays within the unit {own_unit}: stopping that unit ends it, and the worker that it starts",
    )
    if systemd_run is None:
        return (within,)
    user = () if is_root else ("--user",)
    return (Way((systemd_run, *user, "--scope", "--quiet", "--collect", "--", *command)), within)


def ways_here(command: tuple[str, ...]) -> tuple[Way, ...]:
    systemd_run = shutil.which("systemd-run") if _SYSTEMD.is_dir() else None
    return ways(command, _own_unit(), systemd_run=systemd_run, is_root=os.geteuid() == 0)


def _own_unit() -> str | None:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return unit_of(line.split(":", 2)[2] for line in lines if line.count(":") >= 2)
