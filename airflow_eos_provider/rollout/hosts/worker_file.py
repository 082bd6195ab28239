"""A worker's properties file, read on its machine by commands that only need its content: offsets, topics, rights."""

from __future__ import annotations

from pathlib import PurePosixPath

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.properties_file import PropertiesFile


def read_properties_file(worker: WorkerDescription) -> bytes:
    """The bytes of a worker's properties file as they are now; they may hold secrets."""
    if worker.config is None:
        raise ConfigurationError(f"The description of {worker.worker_id} names no file.")
    sudo = worker.uses_sudo_for("file")
    return PropertiesFile(machine_of(worker.machine), PurePosixPath(worker.config), sudo=sudo).read().data
