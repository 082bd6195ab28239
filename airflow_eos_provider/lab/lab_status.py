"""The state of a lab: its processes, and whether they answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from airflow_eos_provider.lab.servers.part import Part


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of a lab.

    :param pid: None if it does not run.
    :param ready: whether it answers (a worker: ``/health`` is 200).
    :param mode_in_file: ``exactly.once.source.support`` in the worker's properties file; None for the others.
    """

    name: str
    pid: int | None
    ready: bool
    address: str
    mode_in_file: str | None
    log: Path

    @classmethod
    def of(cls, part: Part, token: str) -> ProcessStatus:
        """The current state of one part."""
        process = part.process(token)
        pid, ready = (process.pid, part.answers()) if process else (None, False)
        return cls(part.name, pid, ready, part.address, part.mode_in_file(), part.log)

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
