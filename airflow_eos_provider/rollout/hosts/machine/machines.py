"""Which machine a description names."""

from __future__ import annotations

from airflow_eos_provider.connect.cluster.placement import MachineDescription
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_machine import SshMachine
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine


def machine_of(description: MachineDescription | None) -> Machine:
    """The machine of a worker; nothing is asked of it yet."""
    return ThisMachine() if description is None or description.is_this_one else SshMachine(description)
