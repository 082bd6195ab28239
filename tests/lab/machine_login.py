"""How the machines of a lab are logged in to: keys, an OpenSSH configuration, and what the login may do there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.files import write_atomically
from airflow_eos_provider.rollout.hosts.sudoers import sudoers_of
from tests.lab.machine import Machine
from tests.lab.machine_root import LOGIN_USER
from tests.sshd import make_key, public

_HOST = """\
Host {name}
    HostName {address}
    Port {port}
    User {user}
    IdentityFile {key}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""

#: The machine's own file for the login. sudo leaves out a file with a dot in its name.
SUDOERS_FILE = "/etc/sudoers.d/eos"

_PUT = 'umask 0337; cat >"$1.new"; visudo -q -c -f "$1.new"; mv "$1.new" "$1"'


@dataclass(frozen=True, slots=True)
class MachineLogin:
    """The files in a lab's folder by which its machines are reached."""

    folder: Path

    @property
    def config(self) -> Path:
        """For ``ssh -F``."""
        return self.folder / "ssh_config"

    @property
    def key(self) -> Path:
        """The private key of who logs in; the public one lies beside it."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def write(self, machines: Sequence[Machine]) -> None:
        """Make the keys and write the configuration."""
        make_key(self.key)
        for machine in machines:
            machine.own_folder.mkdir(parents=True)
            make_key(machine.host_key)
        write_atomically(self.config, self.config_text(machines))
        write_atomically(self.known_hosts, "".join(known_host(machine) for machine in machines))

    def config_text(self, machines: Sequence[Machine]) -> str:
        """An OpenSSH client configuration with an entry for each machine, by its name."""
        return "".join(
            _HOST.format(
                name=machine.name,
                address=machine.host,
                port=machine.ssh_port,
                user=LOGIN_USER,
                key=_quoted(self.key),
                known_hosts=_quoted(self.known_hosts),
            )
            for machine in machines
        )


def known_host(machine: Machine) -> str:
    """The machine's line in a file of known hosts."""
    return f"[{machine.host}]:{machine.ssh_port} {public(machine.host_key)}\n"


def grant(workers: Mapping[str, WorkerDescription], machines: Mapping[str, Machine]) -> None:
    """Grant the login on each machine what a roll of the worker there needs: the lines of ``eos hosts sudoers``."""
    for file in sudoers_of(list(workers.values())):
        if file.remarks or not file.sections:
            raise EosError(f"There are no sudoers lines for {file.machine}: {'; '.join(file.remarks)}")
        machines[file.machine].run(["sh", "-euc", _PUT, "sh", SUDOERS_FILE], stdin=file.text().encode())


def _quoted(path: Path) -> str:
    return f'"{path}"'
