"""One command over SSH: data on the standard input of one constant program, which prints until it has ended.

SSH does not transfer words: a server passes one string to the user's login shell. So that string is constant, and has
nothing that sh, bash, zsh, fish or csh read differently within single quotes (no quote, ``!``, backslash or newline).
Its program reads the words as lines and executes them; ``read`` takes no byte beyond its line from a pipe (POSIX), so
the rest is left to the command. A mark ends the output of the login shell's own files.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Sequence
from typing import Any

import asyncssh

from airflow_eos_provider.rollout.hosts.machine.machine import (
    MOST_OUTPUT_BYTES,
    SYSTEM_FOLDERS,
    Answer,
    CommandError,
    MachineLostError,
    too_much_output,
)

#: The program prints this line right before the command begins. Without it, nothing has begun.
MARK = b"eos: the command begins\n"

#: Instead of a number of seconds.
_DETACHED = "detached"

#: A command is ended by its own machine this long after its time is over, seconds, whatever became of the connection.
_FAR_END_SECONDS = 1.0

_PROGRAM = (
    "LC_ALL=C; export LC_ALL; "
    "IFS= read -r count && IFS= read -r limit || exit 125; "
    "while [ $# -lt $count ]; do IFS= read -r word || exit 125; "
    'set -- "$@" "$word"; done; '
    f"PATH=${{PATH:-/usr/bin:/bin}}:{':'.join(SYSTEM_FOLDERS)}; export PATH; "
    f"echo {MARK.decode().strip()}; "
    f"if [ $limit = {_DETACHED} ]; then "
    # As a child: where it leads a session already, setsid forks and does not wait.
    'if command -v setsid >/dev/null; then setsid "$@"; else nohup "$@"; fi; exit $?; fi; '
    'if command -v timeout >/dev/null; then exec timeout -s KILL $limit "$@"; fi; '
    'exec "$@"'
)

#: What a server is asked to run, whatever the command.
REMOTE_COMMAND = f"exec /bin/sh -c '{_PROGRAM}'"

#: A detached command may leave its streams open in the background. After its exit code no more is waited for than this,
#: seconds: what it had printed before is on its way.
_LAST_WORDS_SECONDS = 1.0


def on_stdin(words: Sequence[str], stdin: bytes, seconds: float | None) -> bytes:
    """What the program reads: the command, and then what the command reads."""
    limit = _DETACHED if seconds is None else str(math.ceil(seconds + _FAR_END_SECONDS))
    lines = (str(len(words)), limit, *words)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape") + stdin


def lost(machine: str, what: str, *, may_have_run: bool) -> MachineLostError:
    return MachineLostError(
        f"{machine} gave no answer: {what}.",
        remedy=f"See whether {machine} and its sshd run"
        + (", and what the command has done there." if may_have_run else "."),
        may_have_run=may_have_run,
    )


class CommandSession(asyncssh.SSHClientSession[bytes]):
    def __init__(self, machine: str, program: str, *, detached: bool) -> None:
        self._machine = machine
        self._program = program
        self._detached = detached
        self._out = bytearray()
        self._err = bytearray()
        self._code: int | None = None
        self._has_all = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer(self) -> Answer:
        """What the command has answered, once it has ended."""
        await self._ended
        before, mark, out = bytes(self._out).partition(MARK)
        code = self._code
        if code is None:
            raise lost(self._machine, "the connection was lost within a command", may_have_run=True)
        if not mark:
            raise self._not_run(code, before)
        return Answer(code, out, bytes(self._err))

    def _not_run(self, code: int, printed: bytes) -> CommandError:
        words = (bytes(self._err) + b"\n" + printed).decode("utf-8", "replace").strip()[-300:]
        return CommandError(
            f"The account on {self._machine} runs no commands: exit code {code}{f', {words}' if words else ''}.",
            expected="a login shell, and no ForceCommand and no command= in authorized_keys",
        )

    # -- called by asyncssh

    def data_received(self, data: bytes, datatype: Any) -> None:
        stream = self._out if datatype is None else self._err
        stream += data
        if len(stream) > MOST_OUTPUT_BYTES + len(MARK):
            self._end(too_much_output(self._machine, self._program))

    def eof_received(self) -> bool:
        self._has_all = True
        self._end_if_over()
        return True  # its exit code may come later

    def exit_status_received(self, status: int) -> None:
        self._has_ended(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._has_ended(-_number_of(signal))

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self._has_all:
            self._code = None  # some of what it printed may be missing
        self._end()

    def _has_ended(self, code: int) -> None:
        self._code = code
        self._end_if_over()
        if self._detached:
            asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._end)

    def _end_if_over(self) -> None:
        if self._has_all and self._code is not None:
            self._end()

    def _end(self, error: Exception | None = None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)


def _number_of(name: str) -> int:
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError:
        return int(signal.SIGKILL)
