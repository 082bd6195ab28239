"""Which host a described worker has: how its machine is reached × who owns its process.

A kind that answers both questions at once, such as a pod of Kubernetes, would be checked here first.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import OwnCommands, SystemdUnit
from airflow_eos_provider.rollout.hosts.host import Host
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.service.commands import CommandService
from airflow_eos_provider.rollout.hosts.service.service import Service
from airflow_eos_provider.rollout.hosts.service.started import StartedService
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost

HostFactory = Callable[[WorkerDescription], Host]


def host_of(worker: WorkerDescription) -> Host:
    machine = machine_of(worker.machine)
    return ServicedHost(worker, machine, service_of(machine, worker))


def service_of(machine: Machine, worker: WorkerDescription) -> Service:
    match worker.service:
        case SystemdUnit():
            return SystemdService(machine, worker)
        case OwnCommands():
            return CommandService(machine, worker)
        case None if worker.is_url_only or (worker.is_elsewhere and not worker.start):
            return Service(machine, worker)
        case None:
            return StartedService(machine, worker)
