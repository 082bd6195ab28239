"""The owner's description of one Connect worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from airflow_eos_provider.connect.cluster.placement import MachineDescription, Privilege, ServiceDescription


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """One worker, as its owner describes it.

    :param log: the file with the worker's log output, on its machine; None also where systemd's
        journal is the log.
    :param env: variables for ``start``; values are never shown.
    :param machine: how its machine is reached; None for this one.
    :param service: who owns its process; None for nobody: ``start`` starts it.
    """

    url: str
    config: Path | None = None
    log: Path | None = None
    pid_file: Path | None = None
    start: tuple[str, ...] = ()
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    machine: MachineDescription | None = None
    service: ServiceDescription | None = None

    @property
    def worker_id(self) -> str:
        """``host:port``, the name that Connect itself gives a worker in its statuses."""
        return worker_id_of(self.url)

    @property
    def is_url_only(self) -> bool:
        """Whether nothing is described but its address (and its machine): it can be watched, and not be rolled."""
        return not any((self.config, self.log, self.pid_file, self.start, self.service))

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is on another machine than this one, so that no path of it is one of this machine."""
        return self.machine is not None and not self.machine.is_this_one

    def uses_sudo_for(self, privilege: Privilege) -> bool:
        return self.machine is not None and privilege in self.machine.sudo


def worker_id_of(url: str) -> str:
    """``http://host:8083/`` -> ``host:8083``."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # an unclosed bracket: whoever may join the group names itself as it likes
        return url.partition("//")[2].partition("/")[0].rpartition("@")[2]
