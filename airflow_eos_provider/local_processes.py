"""Local processes known by pid *and* start time, so that a reused pid is never mistaken for ours.

The lab, interval runs and the demo start, watch and stop processes here.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

#: Two readings of one process's start time may differ by this many seconds (clock slew); pids are not reused so fast.
START_TIME_TOLERANCE_SECONDS = 1.0

#: Limit of the wait for a started process's arguments, seconds; it takes microseconds.
_EXEC_SECONDS = 5.0

#: What has not ended so many seconds after it was asked to is killed; a worker needs 1 to 5 s to leave its group.
STOP_SECONDS = 20.0

#: Limit of the wait for a killed process's end, seconds; a disk that stalls holds it up.
_KILLED_SECONDS = 60.0

#: The variables that a started process inherits. Anything else (Airflow's own secrets among them) stays behind.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "USER", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this machine."""

    pid: int
    started_at: float

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie that is not reaped yet counts as dead.

        A killed process of many threads is a zombie from the end of its first thread on. Until the last has ended it
        holds its sockets and its files, and counts as running.
        """
        return self._process() is not None

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started_at) > START_TIME_TOLERANCE_SECONDS:
                return None
            return None if _is_dead(process) else process
        except psutil.NoSuchProcess:
            return None

    def command_line(self) -> list[str]:
        """The process's arguments; empty when it is gone or may not be read."""
        process = self._process()
        if process is None:
            return []
        try:
            return process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return []

    def stop(self, *, grace_seconds: float = 30.0, kill: bool = False) -> bool:
        """Ask the process to end (SIGTERM), and after the grace end it (SIGKILL)."""
        process = self._process()
        if process is None:
            return True
        with contextlib.suppress(psutil.NoSuchProcess):
            if not kill:
                process.terminate()
                if self._ended_within(process, grace_seconds):
                    return True
            process.kill()
            self._ended_within(process, _KILLED_SECONDS)
        return kill

    def _ended_within(self, process: psutil.Process, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                process.wait(timeout=0.1)
                return True
            except psutil.TimeoutExpired:
                if not self.is_alive():  # a zombie of another parent never "ends" for wait()
                    return True
            except psutil.NoSuchProcess:
                return True
        return False


def stop_side_by_side(
    processes: Iterable[ProcessIdentity], *, grace_seconds: float = STOP_SECONDS, kill: bool = False
) -> None:
    """Stop processes and return when they have ended."""
    waiting = list(processes)
    if waiting:
        with ThreadPoolExecutor(len(waiting)) as pool:
            list(pool.map(lambda process: process.stop(grace_seconds=grace_seconds, kill=kill), waiting))


def identify(pid: int) -> ProcessIdentity | None:
    """The live process that has this pid now, or None."""
    try:
        process = psutil.Process(pid)
        return None if _is_dead(process) else ProcessIdentity(pid, process.create_time())
    except psutil.NoSuchProcess:
        return None


def _is_dead(process: psutil.Process) -> bool:
    """Whether nothing of a process is left but its entry; the first of many threads may end before the others."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def from_pid_file(pid_file: Path) -> ProcessIdentity | None:
    """The process that a pid file names, if it still runs.

    A process that started after the file was written merely inherited the number, so it is not the one that is meant.
    """
    try:
        written_at = pid_file.stat().st_mtime
        pid = int(pid_file.read_text(encoding="ascii").strip())
    except (FileNotFoundError, ValueError):
        return None
    identity = identify(pid)
    if identity is None or identity.started_at > written_at + START_TIME_TOLERANCE_SECONDS:
        return None
    return identity


def inherited_variables() -> dict[str, str]:
    """What this process has of :data:`INHERITED_VARIABLES`."""
    return {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    pid_file: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> ProcessIdentity:
    """Start a process that outlives its parent: a session of its own, no inherited streams, its output in ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**inherited_variables(), **(env or {})},
            start_new_session=True,
            close_fds=True,
        )
    _wait_for_arguments(process)
    identity = identify(process.pid)
    if identity is None:  # ended at once: its log says why
        identity = ProcessIdentity(process.pid, time.time())
    if pid_file is not None:
        pid_file.parent.mkdir(parents=True, exist_ok=True)
        pid_file.write_text(f"{process.pid}\n", encoding="ascii")
    return identity


def _wait_for_arguments(process: subprocess.Popen[bytes]) -> None:
    """Wait until the arguments of a process that was just started can be read.

    The kernel lets the parent go on when the child has given up the parent's memory; the new program's arguments are
    there a moment later (``begin_new_exec`` and ``create_elf_tables`` in Linux' ``fs``). Whoever looks in between sees
    a process without arguments, and takes it for another one.
    """
    arguments = Path(f"/proc/{process.pid}/cmdline")
    deadline = time.monotonic() + _EXEC_SECONDS
    with contextlib.suppress(OSError):
        while process.poll() is None and not arguments.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.001)
