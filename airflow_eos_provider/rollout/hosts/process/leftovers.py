"""The files that rolls leave beside a worker's own, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.rollout.hosts.edited_file import backup_path, replacement_path
from airflow_eos_provider.rollout.hosts.process.restart_act import read_record, record_path


def leftovers_of(worker: WorkerDescription) -> Iterator[Path]:
    """Of one worker: the backup of its file, and what killed commands have left. Files that are there, once each."""
    if worker.config is not None:
        config = worker.config.resolve()  # a backup stands beside the file itself, behind any links
        yield from (path for path in (backup_path(config), replacement_path(config)) if path.is_file())
    if worker.pid_file is not None:
        record = record_path(worker.pid_file)
        if record.is_file():
            yield record
        yield from sorted(path for path in record.parent.glob(f".{record.name}.*") if path.is_file())


def require_no_restart(worker: WorkerDescription) -> None:
    """Go on only if no restart of a worker is in flight.

    :raises RefusedError: one is.
    """
    record = None if worker.pid_file is None else read_record(record_path(worker.pid_file))
    if record is not None and record.is_in_flight:
        raise RefusedError(f"{worker.worker_id} is being restarted.", remedy="Wait until that is over.")
