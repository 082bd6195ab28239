"""A lab's worker replaced by an older Kafka Connect with the same properties file: an operator's downgrade."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from airflow_eos_provider.lab import lab as lab_module
from airflow_eos_provider.lab.jars import class_path, ensure_jars
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.waiting import wait_for_worker
from airflow_eos_provider.processes import spawn
from airflow_eos_provider.rollout.hosts.process.worker_process import wait_until_port_is_free

#: The last version before KIP-618.
BEFORE_KIP_618 = "3.2.3"


def replace_by_older(lab: Lab, index: int, version: str = BEFORE_KIP_618) -> None:
    """Stop a worker in good order and start an older version in its place; returns when it answers."""
    lab.stop_worker(index)
    worker = replace(lab.workers[index], class_path=class_path(ensure_jars(version)), version=version)
    if not worker.log_config.exists():  # it logs otherwise than the lab's own workers
        shutil.copyfile(Path(lab_module.__file__).with_name(worker.log_config.name), worker.log_config)
    wait_until_port_is_free(worker.url, 20)
    process = spawn(worker.start_command, log=worker.log, pid_file=worker.pid_file, cwd=lab.root)
    wait_for_worker(worker.url, process, worker.log)
