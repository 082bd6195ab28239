"""The command of a restart, as a plan shows it and its hash covers it, with folder and variables; never a secret."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.redaction import is_secret, redact, secrets_of

_WITHHELD = "***"

#: A digest of few unknown letters can be guessed by trying; so many rounds make each try cost some milliseconds.
_ROUNDS = 20_000

#: A word longer than this is shown by its two ends: class paths have thousands of letters.
_WORD_LENGTH = 72


@dataclass(frozen=True, slots=True)
class Launch:
    """What is executed to start a worker."""

    words: tuple[str, ...] = ()  #: the command, secrets withheld
    cwd: str = ""  #: the folder in which it runs; empty for the caller's
    variables: tuple[str, ...] = ()  #: names of the variables that it is given
    #: of command, folder and variables with their values; equal for equal ones, and tells none of them.
    digest: str = ""

    def __str__(self) -> str:
        folder = f", in {self.cwd}" if self.cwd else ""
        variables = f", with {', '.join(self.variables)} set" if self.variables else ""
        return f"{one_line(self.words)}{folder}{variables}"


def launch_of(worker: WorkerDescription) -> Launch:
    """What starts a worker that is described by a start command."""
    cwd = str(worker.cwd or "")
    content = json.dumps([worker.start, cwd, sorted(worker.env.items())])
    words = shown_words(worker.start, worker.env)
    return Launch(words, cwd, tuple(sorted(worker.env)), digest_of(worker.worker_id, content))


@functools.lru_cache(maxsize=512)
def digest_of(worker_id: str, content: str) -> str:
    """Tells one content from another, even where it is short, without telling it."""
    return hashlib.pbkdf2_hmac("sha256", content.encode(), worker_id.encode(), _ROUNDS).hex()


def shown_words(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command, with what looks like a secret, or is a secret of these variables, withheld."""
    hidden = secrets_of(variables)
    words: list[str] = []
    for number, word in enumerate(command):
        before = command[number - 1] if number else ""
        name, equals, value = word.partition("=")
        if before.startswith("-") and "=" not in before and is_secret(before):
            word = _WITHHELD
        elif equals and value and is_secret(name):
            word = f"{name}={_WITHHELD}"
        for secret in hidden:
            word = word.replace(secret, _WITHHELD)
        words.append(redact(word))
    return tuple(words)


def one_line(words: Sequence[str]) -> str:
    """A command as one line; long words by their ends."""
    half = _WORD_LENGTH // 2
    return " ".join(word if len(word) <= _WORD_LENGTH else f"{word[:half]}…{word[-half:]}" for word in words)


def how_to_start(worker: WorkerDescription) -> str:
    """In words, how a worker that has ended is started again, as its description says; without secrets."""
    if not worker.start:
        return f"start {worker.worker_id} in the usual way"
    command = shlex.join(shown_words(worker.start, worker.env))
    if worker.cwd is not None:
        command = f"cd {shlex.quote(str(worker.cwd))} && {command}"
    words = [f"start {worker.worker_id}: {command}"]
    if worker.env:
        words.append(f"with the variables that its description sets ({', '.join(sorted(worker.env))})")
    if worker.pid_file is not None:
        words.append(f"and its pid in {worker.pid_file}")
    if worker.log is not None:
        words.append(f"its log {worker.log} may say why it ended")
    return ", ".join(words)
