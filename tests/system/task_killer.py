"""Kills the process of an Airflow task while the Spark driver that it has started writes an interval."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE
from airflow_eos_provider.lab.servers.airflow import AirflowLab
from airflow_eos_provider.local_processes import ProcessIdentity, identify

_LOOK_SECONDS = 0.2

#: How long a Python worker may live before the kill: it has then begun its transaction, or is about to.
_WORKER_LIVES_SECONDS = 0.4


class TaskKiller(threading.Thread):
    """Kills one such process by SIGKILL; its driver lives on.

    :ivar killed: whether it has.
    """

    def __init__(self, airflow: AirflowLab) -> None:
        super().__init__(name="killer", daemon=True)
        self.killed = False
        self._airflow = airflow
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(timeout=30)

    def run(self) -> None:
        while not self.killed and not self._ended.wait(_LOOK_SECONDS):
            self.killed = any(map(self._kill_task_of, self._drivers()))

    def _drivers(self) -> Iterator[psutil.Process]:
        for identity in self._airflow.processes():
            command = identity.command_line()
            if command and "java" in Path(command[0]).name and any("/interval/spark/job.py" in one for one in command):
                with contextlib.suppress(psutil.NoSuchProcess):
                    yield psutil.Process(identity.pid)

    def _kill_task_of(self, driver: psutil.Process) -> bool:
        """Once the driver has a Python worker. The task has started the driver: spark-submit replaces itself."""
        if not self._has_worker(driver):
            return False
        its_driver, task = identify(driver.pid), self._task_of(driver)
        if task is None or its_driver is None or self._ended.wait(_WORKER_LIVES_SECONDS):
            return False
        if not task.is_alive():
            return False
        task.stop(kill=True)
        return its_driver.is_alive()  # or else the task may have reported its end before

    def _has_worker(self, driver: psutil.Process) -> bool:
        """Wait for a Python worker of this driver, which Spark's daemon forks; False if the driver ends without one."""
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                below = {process.pid: process for process in driver.children(recursive=True)}
            except psutil.NoSuchProcess:
                return False
            for process in below.values():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    parent = below.get(process.ppid())
                    if parent is not None and _is_daemon(parent) and _is_daemon(process):
                        return True
        return False

    def _task_of(self, driver: psutil.Process) -> ProcessIdentity | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = identify(driver.ppid())
            return parent if parent in self._airflow.processes() else None
        return None


def _is_daemon(process: psutil.Process) -> bool:
    """Whether this is the daemon of Spark's Python workers, or a worker that it has forked."""
    return not {DAEMON_MODULE, "pyspark.daemon"}.isdisjoint(process.cmdline())
