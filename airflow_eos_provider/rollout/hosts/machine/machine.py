"""A machine: where commands run, however it is reached.

A machine only needs a POSIX shell, coreutils and grep. Words reach a command unchanged: no shell interprets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_eos_provider.errors import EosError, UnreachableError

#: How long one command may take, seconds, unless more is asked for.
COMMAND_SECONDS = 8.0

#: How long the first part of a command that leaves its caller may take, seconds.
HAND_OVER_SECONDS = 30.0

#: No more of what a command prints is taken, bytes, of each of its two streams.
MOST_OUTPUT_BYTES = 16 * 1024 * 1024

#: These are often missing in the ``PATH`` of a command that no person has typed; ``systemctl`` of some is there.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def checked_words(words: Sequence[str]) -> tuple[str, ...]:
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError("A command's first word is its program.")
    for word in words:
        if "\n" in word or "\0" in word:
            raise ValueError("A word of a command holds a newline or a NUL; give it on standard input.")
    return tuple(words)


def too_much_output(machine: str, program: str) -> CommandError:
    """A command that printed more than :data:`MOST_OUTPUT_BYTES`, and was ended."""
    return CommandError(
        f"{program} on {machine or 'this machine'} printed more than {MOST_OUTPUT_BYTES // 1024**2} MiB; it was ended.",
        remedy="Check its output there; no file or log that eos reads is that large.",
    )


class MachineLostError(UnreachableError):
    """A machine cannot be reached, or the connection to it was lost before a command's answer."""

    def __init__(
        self,
        found: str,
        *,
        expected: str | None = None,
        remedy: str | None = None,
        may_have_run: bool = False,
    ) -> None:
        super().__init__(found, expected=expected, remedy=remedy)
        self.may_have_run = may_have_run


class CommandError(EosError):
    """A command on a machine ended with another exit code than 0, or printed more than is taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    #: 0 where it did what it was asked for; negative for the signal that ended it; 127 where there is no such program.
    exit_code: int
    out: bytes = field(repr=False)  #: its standard output; it may hold secrets
    err: bytes = field(repr=False)  #: its standard error
    warning: str = ""  #: in words, what may end a detached command too early; empty if nothing is known

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def problem(self) -> str:
        """In words, why it failed: the last line of its standard error, else its exit code."""
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:300] if lines else f"exit code {self.exit_code}"


class Machine(Protocol):
    """One machine. Its methods may be called from several threads at once."""

    @property
    def name(self) -> str:
        """What a person knows it by: ``connect-1``; empty for this machine, whose ``/proc`` is read directly."""
        ...

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        """Run one command to its end, and return its answer whatever its exit code.

        Once the time is over, the command is ended, as far as that is possible, and given up with a
        :class:`MachineLostError`. So is one whose connection is lost; one that did not begin was tried on a new
        connection before that. A login that is refused and a host key that is not the known one are a
        ``ConfigurationError``.
        """
        ...

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        """Run a command that leaves its caller: it outlives this process, the connection and the login's session.

        The command itself puts what it goes on with into the background, with standard streams of its own (``</dev/null
        >/dev/null 2>&1 &``); this gives it a place where nothing ends it.
        """
        ...


def in_words(machine: Machine) -> str:
    """A machine as messages name it."""
    return machine.name or "this machine"
