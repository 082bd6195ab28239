"""The state of a lab: its processes, and whether they answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from airflow_eos_provider.lab.broker import Broker
from airflow_eos_provider.lab.issuer import Issuer
from airflow_eos_provider.lab.machine import Machine
from airflow_eos_provider.lab.machine_worker import MachineWorker
from airflow_eos_provider.lab.ownership import own_process
from airflow_eos_provider.lab.postgres import Postgres
from airflow_eos_provider.lab.waiting import broker_answers, is_healthy, sshd_answers
from airflow_eos_provider.lab.worker import Worker
from airflow_eos_provider.processes import ProcessIdentity


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of a lab.

    :param name: ``broker``, ``broker2``, ``issuer``, ``postgres``, ``connect-1``, ``w1`` and so on.
    :param pid: None if it does not run. Of a machine its first process, of a worker there its JVM; all as this machine
        counts them.
    :param ready: whether it answers (a worker: ``/health`` is 200).
    :param address: ``host:port`` of a broker, of PostgreSQL and of a machine's sshd; REST address of a worker and of
        the issuer.
    :param mode_in_file: ``exactly.once.source.support`` in the worker's properties file; None for the others.
    """

    name: str
    pid: int | None
    ready: bool
    address: str
    mode_in_file: str | None
    log: Path

    @property
    def alive(self) -> bool:
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab and its processes.

    :param strays: pids of processes that carry the lab's marker though no pid file names them.
    """

    name: str
    folder: Path
    bootstrap_servers: str
    group_id: str
    processes: tuple[ProcessStatus, ...]
    strays: tuple[int, ...]

    @property
    def healthy(self) -> bool:
        """Whether every process of the lab runs and answers."""
        return all(process.ready for process in self.processes)

    def as_json(self) -> dict[str, object]:
        """The status as values that JSON can carry."""
        return {
            **asdict(self),
            "folder": str(self.folder),
            "processes": [
                {**asdict(process), "alive": process.alive, "log": str(process.log)} for process in self.processes
            ],
            "healthy": self.healthy,
        }


def process_of(part: Broker | Issuer | Machine | Postgres | Worker, token: str) -> ProcessIdentity | None:
    """The process that a part is; of a machine what keeps it on.

    :param token: the lab's.
    """
    return part.process() if isinstance(part, MachineWorker) else own_process(part.pid_file, token)


def look_at(part: Broker | Issuer | Machine | Postgres | Worker, token: str) -> ProcessStatus:
    """What is to be seen of one part now.

    :param token: the lab's.
    """
    process = part.first_process if isinstance(part, Machine) else process_of(part, token)
    if isinstance(part, Machine):
        address, mode = f"{part.address}:{part.ssh_port}", None
        ready = process is not None and sshd_answers(part.address, part.ssh_port)
    elif isinstance(part, Broker):
        address, mode = part.bootstrap_servers, None
        ready = process is not None and broker_answers(part.lab_client)
    elif isinstance(part, Issuer | Postgres):
        address, mode = part.address, None
        ready = process is not None and part.answers()
    else:
        address, mode = part.url, part.mode_in_file()
        ready = process is not None and is_healthy(address, part.rest_settings)
    return ProcessStatus(part.name, process.pid if process else None, ready, address, mode, part.log)
