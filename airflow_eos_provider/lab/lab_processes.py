"""Finds the processes of a lab, and locks a lab for one command at a time.

A process is the lab's if a pid file of the lab names it (pid, and a start time no later than the file) *and* its
command carries the lab's marker; or by the marker alone, if its starter was killed before it could write the pid. A
program's name is never looked at, and a process is only ever stopped by pid and start time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.local_processes import ProcessIdentity, from_pid_file, identify

#: Every JVM of a lab carries ``-Deos.lab=<token>:<folder>``, PostgreSQL the same as a setting of its own. The token is
#: a random number that is on disk before the first process starts, so a process is known to be this lab's even if its
#: starter died before it could write down the pid.
MARKER_PROPERTY = "eos.lab"

#: As a Java property, as a setting of ``postgres``, and as ``initdb`` takes one.
_MARKER_PREFIXES = tuple(f"{dashes}{MARKER_PROPERTY}=" for dashes in ("-D", "--", ""))

#: How long one command waits for another one that works on the same lab: longer than a start on a busy machine takes.
COMMAND_LOCK_SECONDS = 900.0


def marker(folder: Path, token: str) -> str:
    """The argument that all processes of the lab in this folder carry."""
    return f"-D{MARKER_PROPERTY}={token}:{folder}"


def own_process(pid_file: Path, token: str) -> ProcessIdentity | None:
    """The process that a pid file of this lab names, if it runs and carries the lab's marker."""
    identity = from_pid_file(pid_file)
    return identity if identity and _carries(identity.command_line(), token, None) else None


def own_processes(folder: Path, token: str | None) -> list[ProcessIdentity]:
    """All live processes of this user (for root: of all users) that carry the lab's token, or its folder."""
    found = []
    for process in psutil.process_iter():
        try:
            # Root's PostgreSQL may run as another user (see postgres.py).
            if os.getuid() not in (0, process.uids().real) or not _carries(process.cmdline(), token, folder):
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        identity = identify(process.pid)
        # Asked again by identity: between the two questions the number may have passed to another process.
        if identity and _carries(identity.command_line(), token, folder):
            found.append(identity)
    return found


def strays(folder: Path, token: str, known: Collection[ProcessIdentity]) -> list[ProcessIdentity]:
    """The lab's processes beside those that its pid files name.

    The children of those are no strays: one that PostgreSQL has just forked carries its parent's arguments for a
    moment, until it gives itself a title.
    """
    pids = {process.pid for process in known}
    return [
        process for process in own_processes(folder, token) if process.pid not in pids and _parent(process) not in pids
    ]


def _parent(process: ProcessIdentity) -> int | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).ppid()
    return None


def _carries(command: list[str], token: str | None, folder: Path | None) -> bool:
    for argument in command:
        if argument.startswith(_MARKER_PREFIXES):
            its_token, _, its_folder = argument.partition("=")[2].partition(":")
            return its_token == token or (folder is not None and its_folder == str(folder))
    return False


@contextmanager
def exclusive(
    folder: Path, progress: Callable[[str], None], *, wait_seconds: float = COMMAND_LOCK_SECONDS
) -> Iterator[None]:
    """Let one command at a time work on a folder.

    The lock file is beside the folder, since ``down`` removes the folder; the system releases it when its holder dies.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f".{folder.name}.lock"
    deadline = time.monotonic() + wait_seconds
    announced = False
    with path.open("a+", encoding="ascii") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                handle.seek(0)
                holder = handle.read().strip() or "unknown"
                if time.monotonic() >= deadline:
                    raise EosError(
                        f"Another command (pid {holder}) is running in {folder}.",
                        remedy="Wait for its end, or end it, or choose another --dir.",
                    ) from error
                if not announced:
                    progress(f"Waiting for another command that works on {folder} (pid {holder})")
                    announced = True
                time.sleep(0.2)  # a poll of the lock, bounded by the deadline above
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def log_tail(log: Path, lines: int = 25) -> str:
    """The end of a log, for an error's text; lines that may hold a secret are left out."""
    try:
        with log.open("rb") as content:
            content.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = content.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    shown = [line for line in text.splitlines() if not _MAY_BE_SECRET.search(line)]
    return "\n".join(shown[-lines:]) or "(the log is empty)"


_TAIL_BYTES = 64_000

#: A property with one of these words in its name and a value other than null; also Connect's key for internal requests.
_MAY_BE_SECRET = re.compile(
    r"(?i)\A(?>.*?(?:password|secret|jaas|token|session-?key|private)).*[=:]\s*+(?!null|\[hidden\])\S"
)
