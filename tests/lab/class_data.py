"""Class-data archives for the lab's broker and workers: a third less CPU at each start (JEP 350).

A JVM spends most of its start on loading and checking classes. The archive is written by a JVM at its end, so one
broker and one worker are started and stopped once for it. It is next to the jars in the cache, together with the first
records of that broker's cluster, with which other clusters are formatted.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.jars.java import class_data_archive
from airflow_eos_provider.lab.ownership import exclusive
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.broker import BOOTSTRAP_CHECKPOINT, Broker, bootstrap_checkpoint
from airflow_eos_provider.lab.servers.broker import MAIN_CLASS as BROKER
from airflow_eos_provider.lab.servers.worker import MAIN_CLASS as WORKER
from airflow_eos_provider.lab.servers.worker import Worker
from airflow_eos_provider.lab.waiting import wait_for_broker, wait_for_worker
from airflow_eos_provider.processes import ProcessIdentity, spawn

#: A JVM writes its archive within two or three seconds of its end; the bound is for machines that do much else.
_WRITING_SECONDS = 120.0

_SCRATCH = ".training-"


def ensure_archives(marker: str, progress: Callable[[str], None]) -> None:
    """Have the archives for the lab's own version of Kafka and Connect; an archive that cannot be made is done without.

    :param marker: the argument by which the processes started here are known to be the caller's lab's.
    :param progress: receives a line for what takes seconds.
    """
    class_path = jars.class_path(jars.jar_folder(jars.DEFAULT_VERSION))
    broker, worker = (class_data_archive(name, class_path) for name in (BROKER, WORKER))
    kept = (broker, worker, bootstrap_checkpoint(class_path))
    if all(file.exists() for file in kept):
        return
    with exclusive(broker.parent, progress):
        if all(file.exists() for file in kept):
            return
        progress("Archiving the classes of broker and worker for faster starts (once; about 10 s)")
        broker.parent.mkdir(exist_ok=True)
        for stale in broker.parent.glob(f"{_SCRATCH}*"):  # of one that was killed: we hold its lock
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=broker.parent) as folder:
            try:
                _train(Path(folder), class_path, marker)
            except EosError as error:
                progress(f"No class-data archive, so starts stay slower: {error.found}")
                return
            for file in kept:
                made = Path(folder) / file.name
                if made.exists():
                    made.replace(file)


def _train(folder: Path, class_path: str, marker: str) -> None:
    """Start a broker and a worker that leave their archives in the folder, and stop them."""
    port, controller_port, rest_port = free_ports(3)
    broker = Broker(
        folder=folder,
        cluster_id=secrets.token_urlsafe(16),
        port=port,
        controller_port=controller_port,
        class_path=class_path,
        marker=marker,
    )
    worker = Worker(folder=folder, number=1, port=rest_port, class_path=class_path, marker=marker)
    broker.prepare()
    shutil.copyfile(broker.log_folder / BOOTSTRAP_CHECKPOINT, folder / bootstrap_checkpoint(class_path).name)
    properties = worker.properties(
        bootstrap_servers=broker.bootstrap_servers, group_id="training", mode=Mode.ENABLED, rebalance_delay_ms=0
    )
    worker.prepare(properties)
    started: list[ProcessIdentity] = []
    try:
        started.append(_start(broker, folder))
        wait_for_broker(broker.lab_client, started[-1], broker.log)
        started.append(_start(worker, folder))
        wait_for_worker(worker.url, started[-1], worker.log)
    finally:
        for process in reversed(started):
            process.stop(grace_seconds=_WRITING_SECONDS)


def _start(part: Broker | Worker, folder: Path) -> ProcessIdentity:
    java, *rest = part.start_command
    name = BROKER if isinstance(part, Broker) else WORKER
    archive = folder / class_data_archive(name, part.class_path).name
    command = [java, f"-XX:ArchiveClassesAtExit={archive}", *(o for o in rest if "SharedArchiveFile" not in o)]
    return spawn(command, log=part.log, pid_file=part.pid_file, cwd=folder)
