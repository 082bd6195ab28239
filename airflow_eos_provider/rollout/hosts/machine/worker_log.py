"""A worker's log file on its machine: searched there, so that only matching lines cross the network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta, timezone, tzinfo
from pathlib import PurePosixPath

from airflow_eos_provider.connect.startup_log import (
    LIMIT_BYTES,
    SEARCHED,
    StartupLog,
    is_rotated,
    mode_from_searched_logs,
)
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.redaction import HIDDEN, is_secret, redact
from airflow_eos_provider.rollout.hosts.machine.file_status import (
    FORMAT,
    FileStatus,
    require_absolute,
    statuses,
    writable_by_others,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, Machine, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.sudo import Command, Sudo

#: No more than this many bytes from the end of a log are shown.
TAIL_BYTES = 16 << 10

#: How long a search may take, seconds; the largest part of a log that is searched is a gibibyte.
SEARCH_SECONDS = 60.0

#: The words after it are a command that prints a log. Only what is searched leaves the machine.
_SEARCH = f'"$@" | grep -a -b -e {SEARCHED[0]} -e {SEARCHED[1]}'

#: Hours and minutes from UTC, as ``date +%z`` prints them.
_OFFSET = re.compile(r"([+-])([01]\d|2[0-3])([0-5]\d)")

_ONE_LINE = re.compile(r"[^\n\0]*")

_WITHHELD = "(a line that may hold a secret is left out)"


class WorkerLog:
    """A worker's log on a machine."""

    def __init__(self, machine: Machine, path: PurePosixPath, *, sudo: bool) -> None:
        require_absolute("log", path)
        self._machine = machine
        self._path = path
        self._with_sudo = sudo
        self._sudo = Sudo(machine)
        self._owner: str | None = None

    def startup(self, started_at: float, *, zone: tzinfo | None) -> StartupLog:
        """The mode that the process started at ``started_at`` printed into it.

        Also looks into rotated logs beside it that the login may read; sudo is for the log itself alone.
        """
        searched = self._search(self._whole())
        if isinstance(searched, str):
            if "No such file" in searched:
                return StartupLog(None, f"there is no log {self}")
            return StartupLog(None, f"the log {self} cannot be read ({searched})")

        def logs() -> Iterator[tuple[str, bytes]]:
            yield self._path.name, searched
            for rotated in self._rotated(started_at):
                found = self._search(Command(self._last(rotated, LIMIT_BYTES)))
                if isinstance(found, bytes):
                    yield rotated.name, found

        return mode_from_searched_logs(self._path.name, logs(), started_at, zone=zone)

    def size(self) -> int:
        """Its size now, bytes; 0 where it is not there, or may not be looked at."""
        answer = self._machine.run(("stat", "-L", FORMAT, "--", str(self._path)))
        return statuses(answer, 1)[0].size if answer.ok else 0

    def tail(self, since: int = 0, *, lines: int = 15, secrets: Iterable[str] = ()) -> str:
        """The last lines that were written to it, as they may be shown."""
        try:
            size = self.size() if since else 0
            answer = self._run(self._end())
        except EosError as error:
            return f"(the log {self} cannot be read: {error.found})"
        if not answer.ok:
            return f"(the log {self} cannot be read: {answer.problem})"
        data = answer.out
        new = size - since
        if since and 0 <= new < len(data):
            data = data[len(data) - new :]
        elif len(data) >= TAIL_BYTES:
            data = data.partition(b"\n")[2]  # the first line is cut
        return shown_lines(data.decode("utf-8", "replace"), lines=lines, secrets=secrets)

    def commands(self) -> tuple[Command, ...]:
        """All that reads this log and needs sudo; none where the login may read it itself."""
        if not self._with_sudo or self._machine.run(("test", "-r", str(self._path))).ok:
            return ()
        owner = self._user()
        if not owner:
            return ()
        unsafe = self._unsafe()
        if unsafe is not None:
            raise RefusedError(
                f"{unsafe}, and so redirect commands that run as {owner} for {self} to other files.",
                remedy="Let only root and the log's owner write that folder, or let the login's group read the log.",
            )
        return (self._whole(), self._end())

    def __str__(self) -> str:
        return f"{self._path} on {self._machine.name}" if self._machine.name else str(self._path)

    def _whole(self) -> Command:
        return Command(self._last(self._path, LIMIT_BYTES), self._user())

    def _end(self) -> Command:
        return Command(self._last(self._path, TAIL_BYTES), self._user())

    def _last(self, path: PurePosixPath, size: int) -> tuple[str, ...]:
        return ("tail", "-c", str(size), "--", str(path))

    def _user(self) -> str:
        if not self._with_sudo:
            return ""
        if self._owner is None:
            owner = self._folders()[-1][1].owner
            self._owner = "" if self._sudo.login in ("root", owner) else owner
        return self._owner

    def _folders(self) -> list[tuple[PurePosixPath, FileStatus]]:
        """The folders from ``/`` to the log's own, behind any links."""
        real = self._machine.run(("readlink", "-v", "-f", "--", str(self._path.parent)))
        folder = PurePosixPath(os.fsdecode(real.out.removesuffix(b"\n"))) if real.ok else self._path.parent
        steps = [*reversed(folder.parents), folder]
        answer = self._machine.run(("stat", FORMAT, "--", *map(str, steps)))
        if not answer.ok:
            raise ConfigurationError(
                f"The folder of {self} cannot be seen: {answer.problem}.",
                remedy="Correct the worker's 'log', or let the login pass through the folders above it.",
            )
        return list(zip(steps, statuses(answer, len(steps)), strict=True))

    def _unsafe(self) -> str | None:
        folders = self._folders()
        return writable_by_others(folders, folders[-1][1].uid)

    def _run(self, command: Command, *, before: tuple[str, ...] = ()) -> Answer:
        """Run it as the login, and where that may not read the log through sudo."""
        answer = self._machine.run((*before, *command.words), seconds=SEARCH_SECONDS)
        if not answer.err or not command.user or b"No such file" in answer.err:
            return answer
        return self._machine.run((*before, *self._sudo.words(command)), seconds=SEARCH_SECONDS)

    def _search(self, command: Command) -> bytes | str:
        """What was found in a log; a text where it cannot be read."""
        answer = self._run(command, before=("sh", "-c", _SEARCH, "sh"))
        return answer.problem if answer.err or answer.exit_code not in (0, 1) else answer.out

    def _rotated(self, started_at: float) -> list[PurePosixPath]:
        """Logs rotated away since the process started, newest first."""
        listed = self._machine.run(("ls", "-1", "-A", "--", str(self._path.parent)))
        names = [name for name in os.fsdecode(listed.out).splitlines() if is_rotated(self._path.name, name)]
        if not listed.ok or not names:
            return []
        paths = [self._path.with_name(name) for name in names]
        found = statuses(self._machine.run(("stat", "-L", FORMAT, "--", *map(str, paths))))
        if len(found) != len(paths):  # one was rotated on meanwhile; the next look sees it
            return []
        dated = [(status.modified_ns / 1e9, path) for status, path in zip(found, paths, strict=True)]
        return [path for written_at, path in sorted(dated, reverse=True) if written_at >= started_at]


def startup_mode(
    machine: Machine, log: PurePosixPath, started_at: float, *, zone: tzinfo | None, sudo: bool
) -> StartupLog:
    """The mode that a process of a machine printed at its start; see :meth:`WorkerLog.startup`. Never raises but for a
    machine that is lost.
    """
    try:
        return WorkerLog(machine, log, sudo=sudo).startup(started_at, zone=zone)
    except MachineLostError:
        raise
    except EosError as error:
        return StartupLog(None, error.found)


def zone_at(machine: Machine, moment: float, *, variable: str = "") -> tzinfo | None:
    """The time zone of a machine, or of a process on it, as it was at one moment."""
    if not _ONE_LINE.fullmatch(variable):
        return None
    own = ("env", f"TZ={variable}") if variable else ()
    answer = machine.run((*own, "date", f"--date=@{int(moment)}", "+%z"))
    text = answer.out.decode("ascii", "replace").strip()
    found = _OFFSET.fullmatch(text)
    if not answer.ok or found is None:
        return None
    offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-offset if found[1] == "-" else offset)


def shown_lines(text: str, *, lines: int = 15, secrets: Iterable[str] = ()) -> str:
    """The last lines of a log as they may be shown, or a sentence if there are none."""
    hidden = [secret for secret in secrets if secret]
    shown = []
    for line in [line for line in redact(text).splitlines() if line.strip()][-lines:]:
        unsafe = HIDDEN in line or is_secret(line) or any(secret in line for secret in hidden)
        shown.append(_WITHHELD if unsafe else line[:500])
    return "\n".join(shown) or "(nothing)"
