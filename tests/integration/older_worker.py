"""A lab's worker replaced by an older Kafka Connect with the same properties file: an operator's downgrade."""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.lab.jars.jars import class_path, ensure_jars
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import require_free
from airflow_eos_provider.lab.servers.part import place_log_config
from airflow_eos_provider.lab.waiting import wait_for_worker
from airflow_eos_provider.local_processes import spawn

#: The last version before KIP-618.
BEFORE_KIP_618 = "3.2.3"


def replace_by_older(lab: Lab, index: int, version: str = BEFORE_KIP_618) -> None:
    """Stop a worker in good order and start an older version in its place; returns when it answers."""
    lab.stop_worker(index)
    worker = replace(lab.workers[index], class_path=class_path(ensure_jars(version)), version=version)
    place_log_config(worker.log_config)  # it logs otherwise than the lab's own workers
    require_free(worker.port, worker.name, seconds=20)
    process = spawn(worker.start_command, log=worker.log, pid_file=worker.pid_file, cwd=lab.root)
    wait_for_worker(worker.url, process, worker.log)
