"""The processes of Airflow's components, processes that are suspended for a while, and the DAG files of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from airflow_eos_provider.lab.airflow import AirflowLab


def main_process(airflow: AirflowLab, component: str) -> psutil.Process:
    """The process of a component that all of its others descend from."""
    found = {}
    for identity in airflow.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(identity.pid)
            # "…/bin/airflow scheduler", or "airflow api_server -- host:…" where Airflow renames its processes.
            if f"airflow {component}" in " ".join(process.cmdline()).replace("_", "-"):
                found[process.pid] = process
    (main,) = [process for process in found.values() if process.ppid() not in found]
    return main


@contextlib.contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    """Meanwhile the process exists and does nothing."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def all_results_are_in(airflow: AirflowLab) -> bool:
    """Whether each process that runs tasks has handed its last result to the scheduler, which may not have read it."""
    # A process that renames itself leaves blanks behind its title.
    titles = [" ".join(process.command_line()).rstrip() for process in airflow.processes()]
    return not [title for title in titles if title.startswith("airflow worker -- ") and not title.endswith("<idle>")]


def has_heard_of_the_end(airflow: AirflowLab, run_id: str, task_id: str) -> bool:
    """Whether the scheduler knows that a process of the task has ended; Airflow 3.3.2 loses an answer before that."""
    log = airflow.log("scheduler").read_text(encoding="utf-8", errors="replace")
    heard = [line for line in log.splitlines() if "Received executor event with state success" in line]
    return any(f"task_id='{task_id}', run_id='{run_id}'" in line for line in heard)


_SOON = """

from datetime import timedelta

for each in dag.tasks:
    each.retry_delay = timedelta(seconds=2)
"""


def copy_with_early_retries(file: Path, folder: Path) -> None:
    """Copy a DAG file whose ``dag`` tries a killed task again after two seconds, not after half a minute."""
    (folder / file.name).write_text(file.read_text(encoding="utf-8") + _SOON, encoding="utf-8")
