"""Commands that run as another user, through ``sudo -n``, and the narrow rights that they need.

A right is one command with exactly its words. The lines for ``/etc/sudoers`` are built from the same values that run,
so a grant and its command cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.hosts.machine.machine import COMMAND_SECONDS, Answer, Machine

#: Folders of programs that are taken for the system's, in this order. The login's own ``PATH`` is not asked: a line
#: for a program that the login may write would give it everything.
PROGRAM_FOLDERS = (
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/run/current-system/sw/bin",
)

#: What an argument in a sudoers file takes for a pattern, a separator or a comment. sudo 1.9.13 reads all other
#: printable characters as they are, and refuses a backslash before most of them.
_ESCAPED = re.compile(r"[*?\[\]!,:=#^]")

#: Sudo compares the arguments as one text with spaces between them, so a space within one could stand for two.
_UNSAFE_WORD = re.compile(r"[\s\0]")

#: A user as sudo takes one without quotes: a name, one of a directory service, or ``#`` and a number.
_USER = re.compile(r"#[0-9]+|[^\W\d][\w.@\\-]*\$?")

#: What sudoers would take for an alias.
_ALIAS = re.compile(r"[A-Z][A-Z0-9_]*")

_FIND_PROGRAMS = (
    'for p; do f=; for d in {folders}; do if [ -x "$d/$p" ]; then f=$d/$p; break; fi; done; printf "%s\\n" "$f"; done'
)


@dataclass(frozen=True, slots=True)
class Command:
    #: program and arguments, exactly as they run. A program without a slash is looked for in :data:`PROGRAM_FOLDERS`.
    words: tuple[str, ...]
    user: str = ""  #: who runs it, through sudo; empty for the login itself, without sudo

    def __str__(self) -> str:
        return " ".join(self.words)


class Sudo:
    """Runs commands on a machine, those of another user through sudo. It may be used from several threads at once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._login = ""
        self._programs: dict[str, str] = {}

    @property
    def login(self) -> str:
        if not self._login:
            answer = self._machine.run(("id", "-un"))
            self._login = answer.out.decode("utf-8", "surrogateescape").strip()
            if not answer.ok or not self._login:
                raise ConfigurationError(
                    f"The user of this login{_on(self._machine)} has no name: {answer.problem}.",
                    remedy="Log in as a user that the machine knows.",
                )
        return self._login

    def run(self, command: Command, *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        """Run one command to its end; see :meth:`Machine.run`."""
        return self._machine.run(self.words(command), stdin=stdin, seconds=seconds)

    def words(self, command: Command) -> tuple[str, ...]:
        """What is executed: the command, behind ``sudo -n -u USER --`` where another user runs it."""
        if not command.user or command.user == self.login:
            return command.words
        return ("sudo", "-n", "-u", command.user, "--", *self._absolute(command))

    def lines(self, commands: Iterable[Command]) -> tuple[str, ...]:
        """The lines for ``/etc/sudoers`` that these commands need; none for those without sudo."""
        theirs = self._with_sudo(commands)
        return lines(self.login, theirs, self._paths(theirs)) if theirs else ()

    def missing(self, commands: Iterable[Command]) -> tuple[Command, ...]:
        """Those of these commands that sudo does not let the login run without a password. None of them is run."""
        theirs = self._with_sudo(commands)
        if not theirs:
            return ()
        refused = [command for command in theirs if not self._listed(command).ok]
        if len(refused) == len(theirs):
            return tuple(refused)
        # A command that needs a password is listed as allowed, too; only the whole list tells them apart.
        listing = self._machine.run(("env", "LC_ALL=C", "sudo", "-n", "-l", "-l"))
        text = listing.out.decode("utf-8", "surrogateescape")
        paths = self._paths(theirs)
        return tuple(c for c in theirs if c in refused or asks_for_password(text, c, paths))

    def obstacle(self, commands: Iterable[Command], act: Literal["restart", "change", "answer"]) -> Obstacle | None:
        """Why sudo would not let the login run these commands; None if nothing is seen against it."""
        all_of_them = tuple(commands)
        try:
            missing = self.missing(all_of_them)
        except ConfigurationError as error:
            return Obstacle(act, error.found.rstrip("."), (error.remedy or "").rstrip("."))
        if not missing:
            return None
        first = missing[0]
        what = (
            f"sudo{_on(self._machine)} does not let {self.login} run '{first}' as {first.user} without a password"
            f"{f' ({len(missing)} of {len(all_of_them)} commands)' if len(missing) > 1 else ''}"
        )
        return Obstacle(act, what, "put the lines that 'eos hosts sudoers' prints into a file of /etc/sudoers.d there")

    def _with_sudo(self, commands: Iterable[Command]) -> tuple[Command, ...]:
        """Those that go through sudo, once each, in their order."""
        return tuple(dict.fromkeys(c for c in commands if c.user and c.user != self.login))

    def _listed(self, command: Command) -> Answer:
        answer = self._machine.run(("sudo", "-n", "-l", "-u", command.user, "--", *self._absolute(command)))
        if answer.exit_code in (126, 127):
            raise ConfigurationError(
                f"There is no sudo{_on(self._machine)}.",
                remedy=f"Install it, or log in as {command.user}.",
            )
        return answer

    def _absolute(self, command: Command) -> tuple[str, ...]:
        return (self._paths((command,))[command.words[0]], *command.words[1:])

    def _paths(self, commands: Sequence[Command]) -> Mapping[str, str]:
        """Program -> its absolute path there."""
        programs = {command.words[0] for command in commands}
        unknown = sorted(program for program in programs if "/" not in program and program not in self._programs)
        if unknown:
            self._programs |= find_programs(self._machine, unknown)
        return {program: self._programs.get(program, program) for program in programs}


def find_programs(machine: Machine, names: Sequence[str]) -> dict[str, str]:
    """Where a machine has these programs, among the folders of its system."""
    script = _FIND_PROGRAMS.format(folders=" ".join(PROGRAM_FOLDERS))
    answer = machine.run(("sh", "-c", script, "sh", *names))
    found = dict(zip(names, answer.out.decode("utf-8", "surrogateescape").splitlines(), strict=False))
    for name in names:
        if not found.get(name):
            raise ConfigurationError(
                f"There is no program '{name}'{_on(machine)}, in none of {', '.join(PROGRAM_FOLDERS)}.",
                remedy="Install it there (most are of GNU coreutils).",
            )
    return found


def lines(login: str, commands: Iterable[Command], programs: Mapping[str, str]) -> tuple[str, ...]:
    """Lines for ``/etc/sudoers``, one a command: these words and no others."""
    return tuple(
        dict.fromkeys(
            f"{_user(login)} ALL=({_user(command.user)}) NOPASSWD: {granted(command, programs)}" for command in commands
        )
    )


def granted(command: Command, programs: Mapping[str, str]) -> str:
    """One command as a sudoers file has it: nothing in it is a pattern."""
    program, *arguments = command.words
    path = programs.get(program, program)
    if not path.startswith("/"):
        raise ConfigurationError(f"The program {path} has no absolute path.", remedy="Name it with its folder.")
    for word in (path, *arguments):
        if not word or _UNSAFE_WORD.search(word):
            raise ConfigurationError(
                f"sudo cannot be narrowed to the command '{command}': it takes the arguments as one text, so a space "
                "in an argument and an empty argument are ambiguous.",
                expected="words without spaces",
                remedy="Give the file or the unit a name without spaces, or log in as the user who may do this.",
            )
    return " ".join([_escaped(path), *(map(_escaped, arguments) if arguments else ('""',))])


def asks_for_password(listing: str, command: Command, programs: Mapping[str, str]) -> bool:
    """Whether ``sudo -l -l`` shows that a command that is allowed needs a password.

    The last entry that fits counts, as for sudo. An entry with a pattern or an alias is not looked into: False then.
    """
    head, *entries = re.split(r"^Sudoers entry:.*$", listing, flags=re.MULTILINE)
    if re.search(r"(^|[\s,])!authenticate\b", head):
        return False
    wanted = {"ALL", granted(command, programs)}
    asks = False
    for entry in entries:
        options, _, listed = entry.partition("Commands:")
        users = re.search(r"^[ \t]*RunAsUsers: (.*)$", options, flags=re.MULTILINE)
        names = {name.strip() for name in users[1].split(",")} if users else {"root"}
        if names & {"ALL", command.user} and wanted & {line.strip() for line in listed.splitlines()}:
            asks = "!authenticate" not in options
    return asks


def _escaped(word: str) -> str:
    # A backslash is read twice: by sudoers' own reader, and as a pattern's.
    return _ESCAPED.sub(lambda found: "\\" + found[0], word.replace("\\", "\\" * 4))


def _user(name: str) -> str:
    if not _USER.fullmatch(name) or _ALIAS.fullmatch(name):
        raise ConfigurationError(
            f"The user name {name!r} cannot be written into a sudoers file unambiguously.",
            remedy="Grant the right manually, or use another user.",
        )
    return name.replace("\\", "\\\\").replace("@", "\\@")


def _on(machine: Machine) -> str:
    return f" on {machine.name}" if machine.name else ""
