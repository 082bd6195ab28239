"""A worker's properties file for commands that need its content, and what rolls leave next to a worker's files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.properties_file import (
    PropertiesFile,
    backup_path,
    part_path,
    replacement_path,
)
from airflow_eos_provider.rollout.hosts.service.restart_act import record_path


def read_properties_file(worker: WorkerDescription) -> bytes:
    """The bytes of a worker's properties file as they are now; they may hold secrets."""
    if worker.config is None:
        raise ConfigurationError(f"The description of {worker.worker_id} names no file.")
    sudo = worker.uses_sudo_for("file")
    return PropertiesFile(machine_of(worker.machine), PurePosixPath(worker.config), sudo=sudo).read().data


def leftovers_of(worker: WorkerDescription) -> Iterator[Path]:
    """What rolls have left on this machine: the backup of the worker's file, and files of commands that were killed."""
    if worker.config is not None:
        config = worker.config.resolve()  # a backup stands beside the file itself, behind any links
        backup = backup_path(config)
        parts = (backup, replacement_path(config), part_path(config), replacement_path(backup))
        yield from (path for path in parts if path.is_file())
    record = record_path(worker)
    if record is not None:
        yield from sorted(path for path in record.parent.glob(f"{record.stem}.*") if path.is_file())
