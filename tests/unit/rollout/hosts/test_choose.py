"""Which host a described worker gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_eos_provider.connect.cluster.placement import MachineDescription, OwnCommands, SystemdUnit
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.rollout.hosts.choose import service_of
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_machine import SshMachine
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service.commands import CommandService
from airflow_eos_provider.rollout.hosts.service.service import Service
from airflow_eos_provider.rollout.hosts.service.started import StartedService
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService

BY_URL = WorkerDescription("http://w1:8083")
STARTED = replace(BY_URL, start=("connect.sh",), pid_file=Path("/w1.pid"))
FAR = MachineDescription("connect-1")


@pytest.mark.parametrize(
    ("worker", "machine", "service"),
    [
        (BY_URL, ThisMachine, Service),
        (replace(BY_URL, config=Path("/w1.properties")), ThisMachine, StartedService),
        (STARTED, ThisMachine, StartedService),
        (replace(STARTED, machine=FAR), SshMachine, StartedService),
        (replace(BY_URL, config=Path("/w1.properties"), machine=FAR), SshMachine, Service),
        (replace(BY_URL, service=SystemdUnit("connect.service")), ThisMachine, SystemdService),
        (replace(BY_URL, service=OwnCommands(("a",), ("b",)), machine=FAR), SshMachine, CommandService),
    ],
)
def test_a_host_is_a_machine_and_a_service(worker: WorkerDescription, machine: type, service: type[Service]) -> None:
    found = machine_of(worker.machine)
    assert (type(found), type(service_of(found, worker))) == (machine, service)
