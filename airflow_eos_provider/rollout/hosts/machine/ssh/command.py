"""How a command travels over SSH: as data on the standard input of one constant program.

SSH does not transfer words: a server passes one string to the user's login shell. So that string is constant, and has
nothing that sh, bash, zsh, fish or csh read differently within single quotes (no quote, ``!``, backslash or newline).
Its program reads the words as lines and executes them; ``read`` takes no byte beyond its line from a pipe (POSIX), so
the rest is left to the command. A mark ends the output of the login shell's own files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from airflow_eos_provider.rollout.hosts.machine.machine import SYSTEM_FOLDERS

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


def on_stdin(words: Sequence[str], stdin: bytes, seconds: float | None) -> bytes:
    """What the program reads: the command, and then what the command reads."""
    limit = _DETACHED if seconds is None else str(math.ceil(seconds + _FAR_END_SECONDS))
    lines = (str(len(words)), limit, *words)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape") + stdin
