"""A worker whose description does not say who owns its process: its file is read, and it is not rolled."""

from __future__ import annotations

from typing import NoReturn

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.startup_log import StartupLog
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.host import RestartRequest
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts


class UndescribedService:
    """A :class:`~airflow_eos_provider.rollout.hosts.service.service.Service` that knows no process."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        self._worker = worker
        self._problem = "it has no 'service'" if machine.name else "its process is unknown: it has no 'pid_file'"
        self.launch = Launch()
        on_machine = f" on {machine.name}" if machine.name else ""
        self.how_to_start = f"start {worker.worker_id}{on_machine} in the usual way"
        self.log = str(worker.log or "")
        self.commands: tuple[Command, ...] = ()
        self.log_commands: tuple[Command, ...] = ()

    def look(self) -> ServiceFacts:
        """Nothing is known of its process, not even whether it runs."""
        return ServiceFacts(problem=self._problem)

    def launch_now(self, facts: ServiceFacts) -> Launch:
        return self.launch

    def startup(self, facts: ServiceFacts) -> StartupLog:
        return StartupLog(None, self._problem)

    def restart(self, request: RestartRequest) -> NoReturn:
        """Refuse."""
        raise ConfigurationError(
            f"{self._worker.worker_id} cannot be restarted: {self._problem}.",
            expected="service: {systemd: UNIT}, {command: {…}} or {start: […]}",
            remedy="Say in the cluster description who owns its process; see docs/connect/describe-a-cluster.md.",
        )
