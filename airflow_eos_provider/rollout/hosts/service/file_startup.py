"""The mode that a worker printed into its log file, of a service that keeps no log of its own."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

from airflow_eos_provider.connect.startup_log import STARTUP_SECONDS, StartupLog
from airflow_eos_provider.connect.worker import WorkerDescription
from airflow_eos_provider.rollout.hosts.host import StartToken
from airflow_eos_provider.rollout.hosts.machine.far_log import FarLog, startup_mode, zone_at
from airflow_eos_provider.rollout.hosts.machine.far_process import FarProcess
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts

#: Option of a JVM that names the time zone of its dates.
_ZONE = "-Duser.timezone="


class FileStartup:
    """Reads it. A worker prints it once, so an answer holds for as long as the process lives.

    :param machine: where the log is.
    :param worker: the worker's description.
    """

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        self._machine = machine
        self._log = PurePosixPath(worker.log) if worker.log is not None else None
        self._sudo = worker.machine is not None and "log" in worker.machine.sudo
        self._known: tuple[StartToken, StartupLog] | None = None

    def read(self, facts: ServiceFacts) -> StartupLog:
        """What the process of these facts has printed.

        :raises MachineLostError: the machine cannot be reached.
        """
        process = facts.process
        if process is None:
            return StartupLog(None, facts.state or facts.problem or "it does not run")
        if self._log is None:
            return StartupLog(None, "the description has no log")
        if self._known is not None and self._known[0] == facts.token:
            return self._known[1]
        zone = zone_at(self._machine, process.started_at, variable=self._zone_of(process))
        found = startup_mode(self._machine, self._log, process.started_at, zone=zone, sudo=self._sudo)
        age = time.time() - (process.started_at + facts.clock_offset)
        if found.mode is not None or age > STARTUP_SECONDS:
            self._known = (facts.token, found)
        return found

    def _zone_of(self, process: FarProcess) -> str:
        """The process's own time zone; empty where it has none, or it may not be read."""
        named = [word.removeprefix(_ZONE) for word in process.command_line if word.startswith(_ZONE)]
        if named:
            return named[-1]
        answer = self._machine.run(["grep", "-z", "-m", "1", "^TZ=", f"/proc/{process.pid}/environ"])
        return answer.out.decode("ascii", "replace").rstrip("\0\n").removeprefix("TZ=") if answer.ok else ""


def log_commands(machine: Machine, worker: WorkerDescription) -> tuple[Command, ...]:
    """What reads a worker's log file through sudo; see :meth:`FarLog.commands`."""
    if worker.log is None or worker.machine is None or "log" not in worker.machine.sudo:
        return ()
    return FarLog(machine, PurePosixPath(worker.log), sudo=True).commands()
