"""Commands in processes that are forked from one that has imported them.

A test's ``eos`` is a process of its own: folder, environment, standard streams, signals, exit code. Its imports take
half a second of CPU, and a full run has hundreds of it, so one process imports them once and forks for each command,
as a forking server does. It starts no thread and makes no client, so that nothing is cut in half by a fork.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

#: What each command imports late, after its arguments are read: 0.4 s of CPU.
_LATE = (
    *("typer._adapters", "typer._click.decorators", "typer.rich_utils", "rich.markdown"),
    *("csv", "encodings.ascii", "encodings.idna", "httpcore", "importlib.metadata", "pydantic.plugin._loader"),
)

#: A request with all of an environment is far smaller.
_REQUEST_BYTES = 128 * 1024

#: How long the imports, and a fork, may take, seconds.
_START_SECONDS = 600.0

#: The consoles are made with the imports, so all commands have the same width.
COLUMNS = "200"


class Forks:
    """The process that forks, started by the first command."""

    def __init__(self) -> None:
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def start(
        self, module: str, arguments: tuple[str, ...], *, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """What ``python -m module arguments`` does, beside its test: output and errors come through pipes."""
        output, errors = os.pipe(), os.pipe()
        pid, answers = self._fork(module, arguments, folder, environment, output[1], errors[1])
        for _, end in (output, errors):
            os.close(end)
        return _Started(arguments, pid, answers, output[0], errors[0])

    def run(
        self, module: str, arguments: tuple[str, ...], *, folder: Path, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """What ``python -m module arguments`` does.

        :param environment: all of it; but tables are as wide as :data:`COLUMNS` says.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            pid, answers = self._fork(module, arguments, folder, environment, output.fileno(), errors.fileno())
            with answers:
                answers.settimeout(seconds)
                try:
                    code = int(answers.recv(100) or self._ended())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    code = None
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        assert code is not None, f"killed after {seconds:.0f} s: {arguments}\n{texts[0]}\n{texts[1]}"
        return subprocess.CompletedProcess(arguments, code, *texts)

    def _fork(
        self, module: str, arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str], *files: int
    ) -> tuple[int, socket.socket]:
        """The command's pid, and what its exit code comes from."""
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = json.dumps([module, arguments, str(folder), dict(environment)]).encode()
            assert len(request) <= _REQUEST_BYTES
            socket.send_fds(self._socket(), [request], [*files, theirs.fileno()])
        answers.settimeout(_START_SECONDS)
        return int(answers.recv(100) or self._ended()), answers

    def _ended(self) -> str:
        """The process that forks has ended: say so, and let the next command start another one."""
        assert self._server is not None
        process, connection = self._server
        self._server = None
        connection.close()
        raise AssertionError(f"the process that forks has ended with {process.wait(timeout=_START_SECONDS)}")

    def close(self) -> None:
        """End the process that forks."""
        if self._server is not None:
            process, connection = self._server
            self._server = None
            connection.close()
            assert process.wait(timeout=120) in (0, -signal.SIGINT)

    def _socket(self) -> socket.socket:
        if self._server is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                    cwd=Path(__file__).parents[1],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # a terminal is none of the commands'
                    env={**os.environ, "COLUMNS": COLUMNS},
                    pass_fds=[theirs.fileno()],
                )
            self._server = process, ours
        return self._server[1]


class _Started(subprocess.Popen[str]):
    """A command that another process has forked, which tells its exit code."""

    def __init__(self, arguments: tuple[str, ...], pid: int, answers: socket.socket, output: int, errors: int) -> None:
        self.args, self.pid, self.returncode, self._answers = arguments, pid, None, answers
        self.stdin, self.stdout, self.stderr = None, os.fdopen(output), os.fdopen(errors)
        self.text_mode, self._communication_started, self._input = True, False, None

    def _internal_poll(self) -> int | None:
        """What :meth:`poll` calls."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._wait(0)
        return None

    def _wait(self, timeout: float | None) -> int:
        """What :meth:`wait` and :meth:`communicate` call."""
        if self.returncode is None:
            self._answers.settimeout(None if timeout is None else max(timeout, 0))
            try:
                self.returncode = int(self._answers.recv(100))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._answers.close()
        return self.returncode


#: For the tests of this process; :meth:`Forks.close` ends it.
FORKS = Forks()


def _serve(requests: socket.socket) -> None:
    """Fork for each request, until the other side is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here waits for who attends to a request
    while True:
        request, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not request:
            return
        assert len([*Path("/proc/self/task").iterdir()]) == 1, "an import has started a thread, which a fork would lose"
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(json.loads(request), *files)
        for file in files:
            os.close(file)


def _attend(request: tuple[str, list[str], str, dict[str, str]], output: int, errors: int, answers: int) -> None:
    """Fork once more, and report pid and exit code of the command; returns in its process only when it is over."""
    pid = os.fork()
    if pid:
        with socket.socket(fileno=answers) as connection, contextlib.suppress(BrokenPipeError):
            connection.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    module, arguments, folder, environment = request
    os.close(answers)
    for file, number in ((output, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the streams of before believe that they can seek
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _import_all(package: ModuleType) -> None:
    """Everything in a package that starts nothing when it is imported."""
    for _, name, is_package in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if name.rpartition(".")[2] != "__main__":
            module = import_module(name)
            if is_package:
                _import_all(module)


if __name__ == "__main__":
    for each in ("cli", "connect", "journal", "kafka", "lab", "offsets", "rollout"):
        parent = import_module(f"airflow_eos_provider.{each}")
        _import_all(parent)
    for each in _LATE:
        import_module(each)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
