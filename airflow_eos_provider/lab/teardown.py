"""Takes a lab down, in any state."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.lab.lab_processes import exclusive, own_process, own_processes
from airflow_eos_provider.lab.record import LabRecord
from airflow_eos_provider.lab.servers.part import pid_file_of
from airflow_eos_provider.lab.servers.postgres import POSTGRES
from airflow_eos_provider.local_processes import ProcessIdentity, stop_side_by_side


def stop_all(folder: Path, record: LabRecord | None, kill: bool) -> int:
    """Stop all processes of a lab: first the workers, which leave their group and their databases, then the servers.

    :param kill: by SIGKILL, except for PostgreSQL, which has shared memory to give back.
    :returns: how many there were.
    """
    token = record.token if record else None
    everything = own_processes(folder, token)
    brokers = _named(folder.glob("broker*.pid"), token)
    postgres = _named([pid_file_of(folder, POSTGRES)], token)
    stop_side_by_side((process for process in everything if process not in (*brokers, *postgres)), kill=kill)
    for server in postgres:
        with contextlib.suppress(ProcessLookupError):
            if server.is_alive():  # SIGINT ends the clients' sessions. After SIGTERM, which all get, it waits for them.
                os.kill(server.pid, signal.SIGINT)
    stop_side_by_side(brokers, kill=kill)
    stop_side_by_side(postgres)
    left = own_processes(folder, token)
    stop_side_by_side(left)
    left = [process for process in left if process.is_alive()]
    if left:
        raise EosError(
            f"Processes {', '.join(str(process.pid) for process in left)} of the lab in {folder} do not end.",
            remedy="Look at why the system cannot end them (uninterruptible disk access, another user).",
        )
    return len(everything)


#: Stops all processes of the lab in a folder, as :func:`stop_all` does.
Stop = Callable[[Path, LabRecord | None, bool], int]


def take_down(
    folder: Path,
    *,
    keep_data: bool = False,
    progress: Callable[[str], None] = lambda line: None,
    stop: Stop = stop_all,
) -> bool:
    """Stop all processes of the lab in this folder and remove the folder.

    Works on half-started labs and on ones whose record or whole folder is gone.

    :param keep_data: stop in good order and leave the folder. Otherwise workers and brokers are killed: what they would
        still write goes with the folder.
    :returns: whether there was anything to take down.
    """
    folder = folder.absolute()
    if not folder.exists() and not own_processes(folder, None):
        return False
    with exclusive(folder, progress):
        try:
            record = LabRecord.read(folder)
        except ConfigurationError:  # its processes are known by the folder, too
            record = None
        is_lab = (folder / "lab.json").exists()
        stopped = stop(folder, record, is_lab and not keep_data)
        if stopped:
            progress(f"Stopped {stopped} process{'es' * (stopped > 1)}")
        if is_lab and not keep_data:
            remove_folder(folder)
        return is_lab or stopped > 0


def _named(pid_files: Iterable[Path], token: str | None) -> list[ProcessIdentity]:
    processes = (own_process(file, token) for file in pid_files) if token else ()
    return [process for process in processes if process is not None]


def remove_folder(folder: Path) -> None:
    """Remove a lab's folder; what cannot be removed is an error, for a later lab would start on it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a dying process may have written once more
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise EosError(f"{folder} cannot be removed.", remedy="Check who owns the files in it, and remove it manually.")
