"""This machine: commands run as child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO

from airflow_eos_provider.local_processes import INHERITED_VARIABLES
from airflow_eos_provider.rollout.hosts.beside_unit import SYSTEMD_VARIABLES, Way, ways_here
from airflow_eos_provider.rollout.hosts.machine.machine import (
    COMMAND_SECONDS,
    HAND_OVER_SECONDS,
    MOST_OUTPUT_BYTES,
    SYSTEM_FOLDERS,
    Answer,
    MachineLostError,
    checked_words,
    too_much_output,
)

#: What a shell answers for a program that is not there, or may not be executed.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126

#: A command is watched for its end at least this often, seconds.
_WATCH_SECONDS = 0.1


class ThisMachine:
    """Commands run as this user, without a shell, in a session of their own and in the folder ``/``."""

    name = ""

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        """A command that takes too long is ended with its process group; what runs as another user by sudo goes on."""
        command = checked_words(words)
        return _answer(command, command[0], stdin, seconds)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        """In a scope beside this process's systemd unit, where it runs in one and systemd allows it."""
        command = checked_words(words)
        way = _first_that_works(command)
        return replace(_answer(way.command, command[0], stdin, HAND_OVER_SECONDS), warning=way.warning)


def _answer(command: Sequence[str], program: str, stdin: bytes, seconds: float) -> Answer:
    """Run a command to its end, however long what it has put into the background goes on."""
    # Files, not pipes: what goes on in the background may hold them open, and nothing waits for that. In memory: it may
    # be a full disk that is looked at.
    with _memory() as given, _memory() as out, _memory() as err:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=out, stderr=err, cwd="/", env=_environment(), start_new_session=True
            )
        except OSError as error:
            return _not_started(program, error)
        deadline = time.monotonic() + seconds
        try:
            while process.returncode is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(_WATCH_SECONDS, max(0.0, deadline - time.monotonic())))
                if max(os.fstat(file.fileno()).st_size for file in (out, err)) > MOST_OUTPUT_BYTES:
                    raise too_much_output("", program)
                if process.returncode is None and time.monotonic() >= deadline:
                    raise _too_slow(program, seconds)
        except BaseException:
            _end(process)
            raise
        return Answer(process.returncode, _read(out), _read(err))


def _memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("eos"), "w+b")


def _first_that_works(command: tuple[str, ...]) -> Way:
    """The best way that is allowed here, found by doing nothing in it.

    Once it has a command, whether it failed or the command did is not to be told apart.
    """
    *better, last = ways_here(command)
    for way in better:
        harmless = (*way.command[: -len(command)], "true")
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            tried = subprocess.run(harmless, capture_output=True, env=_environment(), timeout=COMMAND_SECONDS)
            if tried.returncode == 0:
                return way
    return last


def _environment() -> Mapping[str, str]:
    """What a command inherits; Airflow's own secrets do not belong to that. What it prints is to be read: English."""
    variables = {name: os.environ[name] for name in (*INHERITED_VARIABLES, *SYSTEMD_VARIABLES) if name in os.environ}
    folders = variables.get("PATH", os.defpath).split(os.pathsep)
    folders += [folder for folder in SYSTEM_FOLDERS if folder not in folders]
    return {**variables, "PATH": os.pathsep.join(folders), "LC_ALL": "C"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with its process group, which it leads, as far as this user may."""
    if process.returncode is None:  # not reaped, so its number is its own, even where it has ended
        with contextlib.suppress(ProcessLookupError, PermissionError):  # what runs as another user by sudo goes on
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _not_started(program: str, error: OSError) -> Answer:
    code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    return Answer(code, b"", f"{program}: {error.strerror or error}".encode())


def _too_slow(program: str, seconds: float) -> MachineLostError:
    return MachineLostError(
        f"{program} on this machine did not end within {seconds:g} s.",
        remedy="Run it by itself there and see what it waits for.",
        may_have_run=True,
    )


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
