"""Real supervisors of Debian as plain processes in a folder of their own, with one worker each."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import OwnCommands
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.local_processes import identify
from tests.families import family_of, stop_family
from tests.missing import not_run
from tests.waiting import until

#: Stands in for the JVM of a worker: prints its settings as Connect does, listens, and ends on SIGTERM unless set
#: otherwise. Options beside the arguments are read from ``FILE.options`` at each start.
PROGRAM = """
import contextlib
import datetime
import pathlib
import signal
import socket
import subprocess
import sys
import time

config, port, *options = sys.argv[1:]
with contextlib.suppress(FileNotFoundError):
    options += pathlib.Path(f"{config}.options").read_text().split()
if "wrap" in options:
    sys.exit(subprocess.call([sys.executable, sys.argv[0], config, port, "inner"]))
if "fail" in options:
    sys.exit("the worker found its settings wrong\\npassword = canary-in-the-log\\nthe end")
if "deaf" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def wait_for(suffix):
    deadline = time.monotonic() + 60
    while not pathlib.Path(f"{config}{suffix}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
def end_when_released(*_):
    pathlib.Path(f"{config}.asked").touch()
    wait_for(".released")
    sys.exit(0)
if "held" in options:
    signal.signal(signal.SIGTERM, end_when_released)
mode = pathlib.Path(config).read_text().rpartition("exactly.once.source.support=")[2].split()[0]
now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
print(f"[{now}] INFO DistributedConfig values: \\n\\texactly.once.source.support = {mode}\\n", flush=True)
ignored = [s.name for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_IGN]
print(f"ignores {ignored}", flush=True)
if "late" in options:
    wait_for(".listen")
server = socket.create_server(("127.0.0.1", int(port)))
while True:
    server.accept()[0].close()
"""

SUPERVISORD = """
[unix_http_server]
file={folder}/s.sock
[supervisord]
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
nodaemon=true
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/s.sock
[program:connect]
startsecs=0
autorestart=true
stopwaitsecs=60
stdout_logfile_maxbytes=0
redirect_stderr=true
{program}
"""


def program(name: str) -> str:
    """The path of a program. Without one the test is reported as not run; where CI is set, as failed."""
    found = shutil.which(name)
    if found is None:
        not_run(f"{name} is not installed")
    return found


@dataclass
class Supervised:
    """One worker below one supervisor.

    :param worker: its description.
    :param options: file of the worker program's options for its next starts.
    :param supervisor: the supervisor's process.
    """

    worker: WorkerDescription
    options: Path
    supervisor: subprocess.Popen[bytes]

    def release(self) -> None:
        """Let a worker that is held end, and those after it at once."""
        self.options.with_name(f"{self.worker.config.name if self.worker.config else ''}.released").touch()

    def let(self, *options: str) -> None:
        """Give the worker's next starts these options."""
        self.options.write_text("\n".join(options))


def worker_in(folder: Path) -> WorkerDescription:
    """A worker with its file and log in a folder; nobody owns it yet."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "w1.properties"
    config.write_text("group.id=g\nexactly.once.source.support=disabled\n")
    (port,) = free_ports(1)
    program_file = folder / "worker.py"
    program_file.write_text(PROGRAM)
    return WorkerDescription(
        url=f"http://127.0.0.1:{port}",
        config=config,
        log=folder / "w1.log",
        start=(sys.executable, str(program_file), str(config), str(port)),
    )


def start_supervisord(
    folder: Path, start: Sequence[str], log: object, **settings: str
) -> tuple[subprocess.Popen[bytes], OwnCommands]:
    """A supervisord with one program, and the commands that restart it and tell its pid."""
    config = folder / "supervisord.conf"
    settings |= {"command": shlex.join(start).replace("%", "%%"), "stdout_logfile": str(log)}
    lines = "\n".join(f"{name}={value}" for name, value in settings.items())
    config.write_text(SUPERVISORD.format(folder=folder, program=lines))
    process = subprocess.Popen([program("supervisord"), "-c", str(config)], stdout=subprocess.DEVNULL)
    ask = (program("supervisorctl"), "-c", str(config))
    return process, OwnCommands((*ask, "restart", "connect"), (*ask, "pid", "connect"))


@contextlib.contextmanager
def supervisord(folder: Path) -> Iterator[Supervised]:
    """A worker below supervisord."""
    worker = worker_in(folder)
    process, own = start_supervisord(folder, worker.start, worker.log)
    with _ended(process, worker, own) as supervised:
        yield supervised


@contextlib.contextmanager
def runit(folder: Path) -> Iterator[Supervised]:
    """A worker below runit's runsv, below runsvdir."""
    worker = worker_in(folder)
    service = folder / "services" / "connect"
    service.mkdir(parents=True)
    run = service / "run"
    run.write_text(f"#!/bin/sh\nexec {shlex.join(worker.start)} >>{shlex.quote(str(worker.log))} 2>&1\n")
    run.chmod(0o755)
    process = subprocess.Popen([program("runsvdir"), str(service.parent)])
    sv = program("sv")
    own = OwnCommands((sv, "restart", str(service)), (sv, "status", str(service)))
    with _ended(process, worker, own) as supervised:
        yield supervised


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes], worker: WorkerDescription, own: OwnCommands) -> Iterator[Supervised]:
    worker = replace(worker, service=own)
    try:
        until(lambda: is_listening(worker), "the worker below its supervisor", seconds=30)
        yield Supervised(worker, Path(f"{worker.config}.options"), process)
    finally:
        end_with_children(process.pid)
        process.wait()
        end_workers(worker.start)


def end_with_children(pid: int) -> None:
    """End a process and all that it has started, its own way first."""
    found = identify(pid)
    if found is not None:
        family = family_of(found)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGHUP if "runsvdir" in " ".join(found.command_line()[:1]) else signal.SIGTERM)
        stop_family(found, grace_seconds=0.3)
        for member in family:
            member.stop(kill=True)


def end_workers(start: Sequence[str]) -> None:
    """End what runs a worker's start command."""
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.cmdline()[: len(start)] == list(start):
                each.kill()


def is_listening(worker: WorkerDescription) -> bool:
    """Whether the worker's port accepts connections."""
    port = int(worker.url.rpartition(":")[2])
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
