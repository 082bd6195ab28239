"""This machine: commands run as child processes, except commands that only read a file."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO

from airflow_eos_provider.processes import INHERITED_VARIABLES
from airflow_eos_provider.rollout.hosts.beside_unit import SYSTEMD_VARIABLES, Way, ways_here
from airflow_eos_provider.rollout.hosts.machine.machine import (
    COMMAND_SECONDS,
    MOST_OUTPUT_BYTES,
    SYSTEM_FOLDERS,
    Answer,
    MachineLostError,
    checked_words,
    too_much_output,
)
from airflow_eos_provider.rollout.hosts.machine.read_here import read_here

#: How long the first part of a command that leaves its caller may take, seconds.
HAND_OVER_SECONDS = 30.0

#: What a shell answers for a program that is not there, or may not be executed.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126

_CHUNK_BYTES = 64 * 1024


class ThisMachine:
    """Commands run as this user, without a shell, in a session of their own and in the folder ``/``."""

    name = ""

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        """A command that takes too long is ended with its process group; what runs as another user by sudo goes on."""
        command = checked_words(words)
        if (out := read_here(command)) is not None:
            return Answer(0, out, b"")
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return _not_started(command[0], error)
        try:
            return _Exchange(process, command[0], stdin, seconds).answer()
        except BaseException:
            _end(process)
            raise

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        """In a scope beside this process's systemd unit, where it runs in one and systemd allows it."""
        command = checked_words(words)
        way = _first_that_works(command)
        # Files, not pipes: what goes on in the background may hold them open, and nothing waits for that.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                result = subprocess.run(
                    way.command,
                    input=stdin,
                    stdout=out,
                    stderr=err,
                    cwd="/",
                    env=_environment(),
                    start_new_session=True,
                    timeout=HAND_OVER_SECONDS,
                    check=False,
                )
            except OSError as error:
                return _not_started(command[0], error)
            except subprocess.TimeoutExpired:
                raise _too_slow(command[0], HAND_OVER_SECONDS) from None
            return Answer(result.returncode, _read(out), _read(err), way.warning)


class _Exchange:
    """Writes a command's standard input and reads what it prints, until both its streams have ended and it has."""

    def __init__(self, process: subprocess.Popen[bytes], program: str, stdin: bytes, seconds: float) -> None:
        self._process = process
        self._program = program
        self._stdin = memoryview(stdin)
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._printed = {"out": bytearray(), "err": bytearray()}

    def answer(self) -> Answer:
        """What the command has answered."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as streams:
            os.set_blocking(process.stdin.fileno(), False)
            streams.register(process.stdin, selectors.EVENT_WRITE)
            streams.register(process.stdout, selectors.EVENT_READ, "out")
            streams.register(process.stderr, selectors.EVENT_READ, "err")
            while streams.get_map():
                for key, _ in streams.select(self._left()):
                    stream = key.fileobj
                    assert not isinstance(stream, int)
                    if not (self._write(key.fd) if key.data is None else self._take(key.fd, key.data)):
                        streams.unregister(stream)
                        with contextlib.suppress(BrokenPipeError):
                            stream.close()  # type: ignore[attr-defined]
        try:
            code = process.wait(self._left())
        except subprocess.TimeoutExpired:
            raise _too_slow(self._program, self._seconds) from None
        return Answer(code, bytes(self._printed["out"]), bytes(self._printed["err"]))

    def _write(self, stream: int) -> bool:
        """Write what the command takes; False when there is no more to write."""
        try:
            written = os.write(stream, self._stdin[:_CHUNK_BYTES]) if self._stdin else 0
        except BlockingIOError:
            return True
        except BrokenPipeError:  # it does not read on, which is its own affair
            return False
        self._stdin = self._stdin[written:]
        return bool(self._stdin)

    def _take(self, stream: int, name: str) -> bool:
        """Take what the command has printed; False at the end."""
        chunk = os.read(stream, _CHUNK_BYTES)
        self._printed[name] += chunk
        if len(self._printed[name]) > MOST_OUTPUT_BYTES:
            raise too_much_output("", self._program)
        return bool(chunk)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _too_slow(self._program, self._seconds)
        return left


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
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
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
    return file.read(MOST_OUTPUT_BYTES)
