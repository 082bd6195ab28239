"""A systemd unit as ``systemctl show`` prints it, and the variables that it gives to its process. Pure values.

Rules: systemctl(1) (show, its exit codes), systemd.exec(5) (Environment=, EnvironmentFile=), systemd.service(5)
(Restart=, timeouts), systemd.unit(5) (StartLimitBurst=, names and templates). systemd 239 and later; a property that a
version does not know is missing in its answer, and counts as empty.
"""

from __future__ import annotations

import binascii
import re
import shlex
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from string import Template
from typing import Generic, TypeVar

T = TypeVar("T")

#: What tells, besides its commands, what a start of a unit executes.
_EXECUTES = ("Id", "Type", "User", "Group", "WorkingDirectory", "Restart", "FragmentPath", "DropInPaths")

#: What ``DefaultTimeoutStartSec=`` and ``DefaultTimeoutStopSec=`` are unless set, seconds.
_DEFAULT_TIMEOUT = 90.0

_SPANS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)(us|ms|s|min|h|d|w|month|y)\b")
_SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "month": 2629800.0,
    "y": 31557600.0,
}

#: The parts of a command as systemctl prints it: its path, its words, what follows them.
_PATH, _WORDS, _REST = "{ path=", " ; argv[]=", re.compile(" ; (?:ignore_errors|flags)=")

#: What divides a shell's commands, and what may stand before the program in one.
_DIVIDERS = re.compile(r"\|\||&&|[;|\n]")
_BEFORE_PROGRAM = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "exec"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})

#: Programs that leave the content of a file that they name as it is.
_READERS = frozenset(
    {"[", "[[", "cat", "chgrp", "chmod", "chown", "cmp", "diff", "egrep", "fgrep", "grep", "head", "ls", "md5sum"}
    | {"mkdir", "restorecon", "setfacl", "sha256sum", "sleep", "stat", "tail", "test"}
)

#: Sets variables in a unit's file.
_ENVIRONMENT = re.compile(r"^[ \t]*Environment[ \t]*=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UnitFile:
    path: str
    data: bytes | None = field(repr=False)  #: its bytes, which may hold secrets; None if they may not be read
    #: last change of anything about it, by its machine's clock; None if that is not known.
    changed_at: float | None = None


def seconds_of(span: str) -> float | None:
    """``1min 30s`` in seconds; None for ``infinity``. A unit that does not say has systemd's default."""
    if span == "infinity":
        return None
    found = _SPANS.findall(span)
    return sum(float(number) * _SECONDS[unit] for number, unit in found) if found else _DEFAULT_TIMEOUT


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _seconds_since_boot(microseconds: str) -> float | None:
    return _number(microseconds) / 1e6 or None


def assignments(text: str) -> dict[str, str]:
    """``A=1 "B=two words"`` as variables; a word that is none is left out."""
    try:
        words = shlex.split(text.replace("$'", "'"), posix=True)
    except ValueError:
        words = text.split()
    pairs = (word.partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals and name}


def _commands_in(text: str) -> list[tuple[str, str]]:
    """Path and words of each command, a line at a time and from left to right."""
    found = []
    for line in text.split("\n"):
        begin = line.find(_PATH)
        while begin >= 0 and (words := line.find(_WORDS, begin)) >= 0:
            rest = _REST.search(line, words + len(_WORDS))
            if rest is None:
                break
            found.append((line[begin + len(_PATH) : words], line[words + len(_WORDS) : rest.start()]))
            begin = line.find(_PATH, rest.end())
    return found


class _Shown(Generic[T]):
    """One property of a unit, as ``systemctl show`` names it; one that is missing counts as empty."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def __get__(self, unit: Unit, owner: type[Unit]) -> T:
        return self._read(unit.properties.get(self.name, "").strip())


@dataclass(frozen=True, slots=True)
class Unit:
    #: what ``systemctl show`` printed, by name; it may hold secrets.
    properties: Mapping[str, str] = field(repr=False)
    files: tuple[UnitFile, ...] = ()  #: the files of those, and the unit's own, as far as they are there

    @classmethod
    def parse(cls, shown: str, files: tuple[UnitFile, ...] = ()) -> Unit:
        """Read the output of ``systemctl show``; of a property that comes several times, the last."""
        properties: dict[str, str] = {}
        for name, equals, value in (line.partition("=") for line in shown.splitlines()):
            if name in ("ExecStart", "ExecStartPre") and name in properties:
                properties[name] += f"\n{value}"
            elif equals:
                properties[name] = value
        return cls(properties, files)

    name = _Shown("Id", str)  #: its own, where it is asked for by an alias
    load_state = _Shown("LoadState", str)
    load_error = _Shown("LoadError", lambda error: error.partition(" ")[2].strip('" '))  #: why it is not loaded
    needs_reload = _Shown("NeedDaemonReload", lambda answer: answer == "yes")
    invocation = _Shown("InvocationID", str)  #: names its last start, random; empty if it was never, or is forgotten
    active_state = _Shown("ActiveState", str)
    result = _Shown("Result", str)  #: how it has ended: ``success``, ``exit-code`` and others
    job = _Shown("Job", lambda job: "" if job == "0" else job)  #: of systemd's, under way for it: ``861``; or empty
    main_pid = _Shown("MainPID", _number)
    #: How often systemd itself has started it again since its last start by a command, or ``reset-failed``.
    restarts = _Shown("NRestarts", _number)
    #: The pause before systemd itself starts it again.
    restart_pause_seconds = _Shown("RestartUSec", lambda span: seconds_of(span or "100ms") or 0.0)
    restart_policy = _Shown("Restart", lambda policy: policy or "no")
    working_directory = _Shown("WorkingDirectory", lambda folder: folder.lstrip("!"))
    _sub_state = _Shown("SubState", str)
    _failed_at = _Shown("StateChangeTimestampMonotonic", _number)
    _main_ended_at = _Shown("ExecMainExitTimestampMonotonic", _number)
    _refuses_start = _Shown("RefuseManualStart", str)
    _refuses_stop = _Shown("RefuseManualStop", str)
    _start_commands = _Shown("ExecStart", _commands_in)
    _commands_before = _Shown("ExecStartPre", _commands_in)
    _environment = _Shown("Environment", assignments)
    _fragment = _Shown("FragmentPath", str)
    _drop_ins = _Shown("DropInPaths", str.split)
    #: How long it may take to stop before systemd kills it, and until it counts as started; None for ever.
    stop_seconds = _Shown("TimeoutStopUSec", seconds_of)
    start_seconds = _Shown("TimeoutStartUSec", seconds_of)
    #: When its last start began, before any command of it, and when its main process was started, seconds since boot.
    start_began_at_boottime = _Shown("InactiveExitTimestampMonotonic", _seconds_since_boot)
    main_started_at_boottime = _Shown("ExecMainStartTimestampMonotonic", _seconds_since_boot)
    #: When all of it had ended the last time. A restart keeps that, while it clears when the main process has ended
    #: (``ExecMainExitTimestamp``).
    ended_at_boottime = _Shown("InactiveEnterTimestampMonotonic", _seconds_since_boot)

    @property
    def is_loaded(self) -> bool:
        return self.load_state == "loaded"

    @property
    def is_between_starts(self) -> bool:
        """Whether it has ended and systemd will start it again after ``RestartSec=``."""
        return self._sub_state.startswith("auto-restart")

    @property
    def is_stopped(self) -> bool:
        return self.active_state in ("inactive", "failed") or self.is_between_starts

    @property
    def has_hit_start_limit(self) -> bool:
        """Whether systemd starts it no more, since it has ended too often (StartLimitBurst=).

        After systemd's own restarts the result stays that of the last end, such as ``exit-code``, as it is of a unit
        that was stopped by a command. But that one has failed as soon as it ended, and this one after ``RestartSec=``.
        """
        if self.result == "start-limit-hit":
            return True
        if self.active_state != "failed" or not self.restarts or self.restart_policy == "no":
            return False
        return (self._failed_at - self._main_ended_at) / 1e6 >= 0.9 * self.restart_pause_seconds

    @property
    def state(self) -> str:
        """In words, how it stands: ``failed (exit-code)``."""
        detail = self.result if self.active_state == "failed" else self._sub_state
        if self.has_hit_start_limit:
            detail = f"start limit after {self.restarts} restarts" if self.restarts else "start limit"
        return f"{self.active_state} ({detail})" if detail else self.active_state

    @property
    def refuses_restart(self) -> bool:
        return "yes" in (self._refuses_start, self._refuses_stop)

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The commands of ExecStart=; systemctl prints their words without quotes, so blanks in one divide it."""
        return tuple(tuple(argv.split()) for _, argv in self._start_commands)

    @property
    def before_start(self) -> tuple[str, ...]:
        """The commands of ExecStartPre=, with the values of the unit's variables."""
        values = {name: value for name, (value, _) in self.variables().items()}
        return tuple(Template(argv).safe_substitute(values) for _, argv in self._commands_before)

    @property
    def executes(self) -> tuple[str, ...]:
        """Everything that tells what a start of it executes, for a digest; no moment, no pid, no variable in it."""
        commands = (*self._commands_before, *self._start_commands)
        return (
            *(f"{path} {argv}" for path, argv in commands),
            *(self.properties.get(name, "").strip() for name in _EXECUTES),
        )

    @property
    def unit_files(self) -> tuple[str, ...]:
        """The unit's file and its drop-ins, in the order in which they are read."""
        return tuple(path for path in (self._fragment, *self._drop_ins) if path)

    def variables(self) -> dict[str, tuple[str, str]]:
        """By name of a variable its value and what sets it; files that may not be read are left out."""
        found: dict[str, tuple[str, str]] = {}
        setters = dict(self._setters())
        for name, value in self._environment.items():
            found[name] = (value, setters.get(name, self._fragment or self.name))
        own = set(self.unit_files)
        for file in self.files:
            if file.path not in own and file.data is not None:
                found.update({n: (v, file.path) for n, v in environment_file(file.data.decode("utf-8", "replace"))})
        return found

    @property
    def unread_files(self) -> tuple[str, ...]:
        """Files of variables that are there and may not be read."""
        own = set(self.unit_files)
        return tuple(file.path for file in self.files if file.path not in own and file.data is None)

    @property
    def variables_changed_at(self) -> float | None:
        """When a file of variables was last changed, by its machine's clock; None if there is none."""
        own = set(self.unit_files)
        moments = [f.changed_at for f in self.files if f.path not in own and f.changed_at is not None]
        return max(moments, default=None)

    def _setters(self) -> Iterator[tuple[str, str]]:
        """Variables by the unit's file that sets them last."""
        by_path = {file.path: file.data for file in self.files}
        for path in self.unit_files:
            text = (by_path.get(path) or b"").decode("utf-8", "replace").replace("\\\n", " ")
            for line in _ENVIRONMENT.findall(text):
                yield from ((name, path) for name in assignments(line))


#: What is asked for.
PROPERTIES = (
    *(shown.name for shown in vars(Unit).values() if isinstance(shown, _Shown)),
    *("Type", "User", "Group", "EnvironmentFiles"),
)


def may_write(line: str, path: str) -> bool:
    """Whether a command, or a line of a script, names a file other than to read it."""
    file = PurePosixPath(path)
    for piece in _DIVIDERS.split(line.strip()):
        words = piece.split()
        if not words or words[0].startswith("#"):
            continue
        if PurePosixPath(words[0]).name in _SHELLS:
            words = [word for word in words[1:] if not word.startswith("-")]
        while words and words[0] in _BEFORE_PROGRAM:
            words = words[1:]
        if not any(file.name in word or word.rstrip("/") == str(file.parent) for word in words):
            continue
        if re.search(rf">\s*\S*{re.escape(file.name)}", piece) or PurePosixPath(words[0]).name not in _READERS:
            return True
    return False


def files_of(parts: Mapping[str, bytes]) -> tuple[UnitFile, ...]:
    """The files in the output of a look: parts ``file PATH`` with ``MTIME CTIME`` and then Base64, or nothing."""
    found = []
    for name, content in parts.items():
        if not name.startswith("file "):
            continue
        head, _, body = content.partition(b"\n")
        moments = [float(word) for word in head.split() if word.replace(b".", b"").isdigit()]
        data: bytes | None
        try:
            data = b64decode(b"".join(body.split())) if body.strip() != b"-" else None
        except binascii.Error:
            data = None
        found.append(UnitFile(name.removeprefix("file "), data, max(moments, default=None)))
    return tuple(found)


def environment_file(text: str) -> Iterator[tuple[str, str]]:
    """The variables of a file as EnvironmentFile= reads it: ``NAME=value``, comments by ``#`` and ``;``, quotes."""
    for line in text.replace("\\\n", "").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            continue
        yield name.strip(), _unquoted(value.strip())


def _unquoted(value: str) -> str:
    try:
        words = shlex.split(value, posix=True) if value[:1] in "\"'" else []
    except ValueError:
        words = []
    return words[0] if words else value
