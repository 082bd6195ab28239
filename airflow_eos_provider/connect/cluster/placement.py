"""The owner's description of where a worker runs: how to reach its machine, and who owns its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

#: What may go through ``sudo -n`` on a worker's machine: reading and replacing its properties file, its service's
#: restart, reading its log.
Privilege = Literal["file", "service", "log"]

PRIVILEGES: tuple[Privilege, ...] = ("file", "service", "log")


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Who logs in to a machine, and how; what is None, the user's own OpenSSH configuration says.

    :param password: from an Airflow connection only.
    :param private_key: text of a private key, from an Airflow connection only.
    :param host_key: the only host key that is taken (``ssh-ed25519 AAAA…``), instead of the known hosts.
    """

    user: str | None = None
    port: int | None = None
    password: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    host_key: str | None = None


@dataclass(frozen=True, slots=True)
class SshConnection:
    """What an Airflow connection of type ``ssh`` says.

    :param host: its host; empty if it names none.
    """

    host: str
    login: SshLogin
    connect_seconds: float | None = None


#: Looks an Airflow connection of type ``ssh`` up by its id.
SshConnections = Callable[[str], SshConnection]


@dataclass(frozen=True, slots=True)
class MachineDescription:
    """A worker's machine: one that is reached over SSH, or this one where something goes through sudo.

    :param ssh: its name, as ``ssh`` takes it: an alias of the user's ``~/.ssh/config``, a host name or an address;
        empty for this machine.
    :param ssh_config: an OpenSSH client configuration instead of the user's own.
    :param known_hosts: a file of known hosts instead of the user's and the system's.
    """

    ssh: str
    login: SshLogin = SshLogin()
    sudo: frozenset[Privilege] = frozenset()
    ssh_config: Path | None = None
    known_hosts: Path | None = None
    connect_seconds: float = 10.0

    @property
    def is_this_one(self) -> bool:
        """Whether it is the machine of ``eos``, or of Airflow's worker, itself: nothing logs in."""
        return not self.ssh

    def __str__(self) -> str:
        return self.ssh or "this machine"


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A worker is the main process of a systemd unit, and systemd restarts it.

    :param unit: its whole name, ``kafka-connect@1.service``.
    :param journal: whether its log is the unit's journal, and not a file.
    """

    unit: str
    journal: bool = False


@dataclass(frozen=True, slots=True)
class OwnCommands:
    """A worker belongs to another supervisor, which is asked by its own commands.

    :param restart: stops and starts the worker, and ends with 0 once that is done.
    :param status: prints the pid of the worker's first process (``pid 4711``, or the number alone); where it does not
        run, no pid.
    """

    restart: tuple[str, ...]
    status: tuple[str, ...]


#: Who owns a worker's process. None stands for nobody: its start command is in the description.
ServiceDescription = SystemdUnit | OwnCommands
