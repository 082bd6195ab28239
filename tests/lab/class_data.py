"""What makes the tests' brokers and workers start with a third less CPU: class-data archives (JEP 350), formatted logs.

A JVM spends most of its start on loading and checking classes. It writes an archive of them at its end, so one broker
and one worker are started and stopped once for it. The archives are next to the jars in the cache, together with the
first records of that broker's cluster, with which other clusters are formatted.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.jars.java import java_program, version_text
from airflow_eos_provider.lab.lab_processes import exclusive
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.broker import MAIN_CLASS as BROKER, Broker
from airflow_eos_provider.lab.servers.connect_worker import MAIN_CLASS as WORKER, Worker
from airflow_eos_provider.lab.servers.part import write_properties
from airflow_eos_provider.lab.waiting import wait_for_broker, wait_for_worker
from airflow_eos_provider.local_processes import ProcessIdentity, spawn

#: A JVM writes its archive within two or three seconds of its end; the bound is for machines that do much else.
_WRITING_SECONDS = 120.0

_SCRATCH = ".training-"
_FIRST_RECORDS = "bootstrap.checkpoint"


def class_data_archive(main_class: str, class_path: str) -> Path:
    """Where the archive of the classes lies that this program loads.

    The JVM takes an archive only if it is of the same JVM and the same jars, and goes on without it otherwise. Jars may
    follow those that were archived, so only the first entry of the class path counts.
    """
    folder = Path(class_path.split(os.pathsep)[0]).parent
    jvm = hashlib.sha256(version_text(str(java_program())).encode()).hexdigest()[:8]
    return folder.parent.parent / "class-data" / f"{folder.name[:16]}-{main_class.rpartition('.')[2]}-{jvm}.jsa"


def archive_options(main_class: str, class_path: str) -> tuple[str, ...]:
    """The option by which a JVM takes its archive, if there is one."""
    archive = class_data_archive(main_class, class_path)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def format_log_folder(broker: Broker) -> None:
    """Write what ``StorageTool`` writes where the voters are configured: who the node is, and the first records.

    The tool's JVM takes 0.8 s of CPU, a third of a broker's start.
    """
    records = _checkpoint(broker.class_path)
    if records.exists():
        broker.log_folder.mkdir(parents=True)
        shutil.copyfile(records, broker.log_folder / _FIRST_RECORDS)
        identity = {"version": "1", "cluster.id": broker.cluster_id, "node.id": str(broker.number)}
        identity["directory.id"] = secrets.token_urlsafe(16)
        write_properties(broker.log_folder / "meta.properties", identity)


def _checkpoint(class_path: str) -> Path:
    return class_data_archive(BROKER, class_path).with_suffix(".checkpoint")


def ensure_archives(marker: str) -> None:
    """Have the archives for the lab's own version of Kafka and Connect; those that cannot be made are done without."""
    class_path = jars.class_path(jars.jar_folder(jars.DEFAULT_VERSION))
    broker, worker = (class_data_archive(name, class_path) for name in (BROKER, WORKER))
    kept = (broker, worker, _checkpoint(class_path))
    if all(file.exists() for file in kept):
        return
    with exclusive(broker.parent, _tell):
        if all(file.exists() for file in kept):
            return
        _tell("Archiving the classes of broker and worker for faster starts (once; about 10 s)")
        broker.parent.mkdir(exist_ok=True)
        for stale in broker.parent.glob(f"{_SCRATCH}*"):  # of one that was killed: we hold its lock
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=broker.parent) as folder:
            try:
                _train(Path(folder), class_path, marker)
            except EosError as error:
                _tell(f"No class-data archive, so starts stay slower: {error.found}")
                return
            for file in kept:
                made = Path(folder) / file.name
                if made.exists():
                    made.replace(file)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


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
        jvm_options=_archiving(folder, BROKER, class_path),
    )
    worker = Worker(
        folder=folder,
        number=1,
        port=rest_port,
        class_path=class_path,
        marker=marker,
        jvm_options=_archiving(folder, WORKER, class_path),
    )
    broker.prepare()
    shutil.copyfile(broker.log_folder / _FIRST_RECORDS, folder / _checkpoint(class_path).name)
    properties = worker.properties(
        bootstrap_servers=broker.bootstrap_servers, group_id="training", mode=Mode.ENABLED, rebalance_delay_ms=0
    )
    worker.prepare(properties)
    started: list[ProcessIdentity] = []
    try:
        started.append(_start(broker))
        wait_for_broker(broker.lab_client, started[-1], broker.log)
        started.append(_start(worker))
        wait_for_worker(worker.url, started[-1], worker.log)
    finally:
        for process in reversed(started):
            process.stop(grace_seconds=_WRITING_SECONDS)


def _archiving(folder: Path, main_class: str, class_path: str) -> tuple[str, ...]:
    return (f"-XX:ArchiveClassesAtExit={folder / class_data_archive(main_class, class_path).name}",)


def _start(part: Broker | Worker) -> ProcessIdentity:
    return spawn(part.start_command, log=part.log, pid_file=part.pid_file, cwd=part.folder)
