"""Airflow's components and what they say of a run: processes, suspended ones, DAG files, how a run ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from airflow_eos_provider.lab.servers.airflow import AirflowLab
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest
from tests.waiting import API_PAUSE_SECONDS, until

#: A run of a test is at its end within so many seconds on a quiet machine.
RUN_SECONDS = 300.0

#: Of the log of a try, what the message of a test that fails shows.
_LOG_LINES = 40


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


def ended(rest: AirflowRest, dag_id: str, run_id: str, seconds: float = RUN_SECONDS) -> str:
    """Wait for the end of a run."""

    def has_ended() -> bool:
        return rest.run_state(dag_id, run_id) in FINAL_STATES

    try:
        until(has_ended, f"the end of {dag_id} {run_id}", seconds=seconds, pause=API_PAUSE_SECONDS)
    except AssertionError as error:
        error.add_note(tries(rest, dag_id, run_id))
        raise
    return rest.run_state(dag_id, run_id)


def succeeded(rest: AirflowRest, dag_id: str, run_id: str, seconds: float = RUN_SECONDS) -> None:
    """Wait for the end of a run that is to succeed; if it does not, the log of its tries is the message."""
    state = ended(rest, dag_id, run_id, seconds)
    assert state == "success", f"{dag_id} {run_id}: {state}\n{tries(rest, dag_id, run_id)}"


def require_unfinished(rest: AirflowRest, dag_id: str, run_id: str) -> None:
    """Fail if a run is over: what is awaited of it does not come any more."""
    state = rest.run_state(dag_id, run_id)
    assert state not in FINAL_STATES, f"{dag_id} {run_id} is over: {state}"


def tries(rest: AirflowRest, dag_id: str, run_id: str) -> str:
    """The log of each try of those tasks of a run that took several, or did not succeed, in words."""
    lines = []
    for task in rest.task_instances(dag_id, run_id):
        if task.try_number < 2 and task.state in (None, "success", "skipped", "upstream_failed"):
            continue
        for number in range(1, task.try_number + 1):
            lines.append(f"{task.task_id} is {task.state}, try {number} of {task.try_number}:")
            log = rest.log(dag_id, run_id, task.task_id, number)
            lines += [f"  {line.timestamp:%H:%M:%S} {line.level} {line.text}" for line in log[-_LOG_LINES:]]
    return "\n".join(lines)


def links(rest: AirflowRest, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
    """The buttons beside a task by their names, as Airflow's page asks for them."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
    return dict(rest._read(path)["extra_links"])


def all_results_are_in(airflow: AirflowLab) -> bool:
    """Whether each process that runs tasks has handed its last result to the scheduler, which may not have read it."""
    # A process that renames itself leaves blanks behind its title.
    titles = [" ".join(process.command_line()).rstrip() for process in airflow.processes()]
    return not [title for title in titles if title.startswith("airflow worker -- ") and not title.endswith("<idle>")]


def has_heard_of_the_end(airflow: AirflowLab, run_id: str, task_id: str) -> bool:
    """Whether the scheduler knows that a process of the task has ended; Airflow 3.3.2 loses an answer before that."""
    return ends_heard_of(airflow, run_id, task_id, 1) > 0


def ends_heard_of(airflow: AirflowLab, run_id: str, task_id: str, try_number: int) -> int:
    """Of how many processes of a try the scheduler knows that they have ended."""
    key = f"task_id='{task_id}', run_id='{run_id}', try_number={try_number},"
    return len([line for line in _scheduler_says("Received executor event with state success", airflow) if key in line])


def tries_lost(airflow: AirflowLab, run_id: str, task_id: str) -> int:
    """How many tries of a task the scheduler has given up: a process ended, and the task had not said how."""
    named = f".{task_id} {run_id} "
    return len([line for line in _scheduler_says("reported that the task instance", airflow) if named in line])


def _scheduler_says(words: str, airflow: AirflowLab) -> list[str]:
    log = airflow.log("scheduler").read_text(encoding="utf-8", errors="replace")
    return [line for line in log.splitlines() if words in line]


_SOON = """

from datetime import timedelta

for each in [task for found in list(globals().values()) if hasattr(found, "task_dict") for task in found.tasks]:
    each.retry_delay = timedelta(seconds=2)
"""


def copy_with_early_retries(file: Path, folder: Path) -> None:
    """Copy a DAG file whose DAGs try a killed task again after two seconds, not after half a minute."""
    (folder / file.name).write_text(file.read_text(encoding="utf-8") + _SOON, encoding="utf-8")
