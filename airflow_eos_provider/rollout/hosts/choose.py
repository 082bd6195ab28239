"""Which host a described worker has: how its machine is reached × who owns its process.

A kind that answers both questions at once, such as a pod of Kubernetes, would be checked here first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import OwnCommands, SystemdUnit
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.host import Host
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.service.commands import CommandService
from airflow_eos_provider.rollout.hosts.service.service import Service
from airflow_eos_provider.rollout.hosts.service.started import StartedService
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost

HostFactory = Callable[[WorkerDescription], Host]

ServiceFactory = Callable[[Machine, WorkerDescription], Service]

#: Who owns a worker's process, by the kind of its description. ``NoneType`` is nobody: the start command of the
#: description starts it.
SERVICES: Mapping[type, ServiceFactory] = {
    SystemdUnit: SystemdService,
    OwnCommands: CommandService,
    NoneType: StartedService,
}


def host_of(worker: WorkerDescription) -> Host:
    """The host of a worker."""
    machine = machine_of(worker.machine)
    return ServicedHost(worker, machine, service_of(machine, worker))


def service_of(machine: Machine, worker: WorkerDescription) -> Service:
    """Who owns a worker's process."""
    if worker.is_url_only or (worker.is_elsewhere and worker.service is None and not worker.start):
        return Service(machine, worker)
    kind = type(worker.service)
    if kind not in SERVICES:
        raise ConfigurationError(
            f"{worker.worker_id} on {worker.machine} has a service of a kind that this version does not roll.",
            expected="service: {systemd: UNIT}, or {command: {restart: […], status: […]}}",
            remedy="Correct the worker in the cluster description; see docs/connect/describe-a-cluster.md.",
        )
    return SERVICES[kind](machine, worker)
