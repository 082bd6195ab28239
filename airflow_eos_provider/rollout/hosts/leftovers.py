"""The files that rolls leave next to a worker's own files, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.rollout.hosts.machine.edited_file import backup_path, part_path, replacement_path
from airflow_eos_provider.rollout.hosts.service.restart_act import record_path


def leftovers_of(worker: WorkerDescription) -> Iterator[Path]:
    """The existing leftovers of one worker: the backup of its file, and files of commands that were killed."""
    if worker.config is not None:
        config = worker.config.resolve()  # a backup stands beside the file itself, behind any links
        backup = backup_path(config)
        parts = (backup, replacement_path(config), part_path(config), replacement_path(backup))
        yield from (path for path in parts if path.is_file())
    record = record_path(worker)
    if record is not None:
        yield from sorted(path for path in record.parent.glob(f"{record.stem}.*") if path.is_file())
