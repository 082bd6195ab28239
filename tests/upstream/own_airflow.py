"""An Airflow of a script's own, and Python processes that see Airflow without one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions, wait_for_dag
from tests.upstream.shown import StartLab

#: For the start of an Airflow, and for what a process of its own does.
SECONDS = 300


@contextmanager
def own_airflow(start: StartLab, dags: Mapping[str, str], **options: Any) -> Iterator[AirflowLab]:
    """Airflow on a PostgreSQL, with its default heartbeats."""
    lab = start(workers=0, postgres=True)
    with tempfile.TemporaryDirectory(prefix="eos-upstream-airflow-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        files = folder / "dags"
        files.mkdir()
        for dag_id, content in dags.items():
            (files / f"{dag_id}.py").write_text(content, encoding="utf-8")
        running = AirflowLab.start(AirflowOptions(folder / "airflow", files, lab.postgres, **options))
        try:
            for dag_id in dags:
                wait_for_dag(running, dag_id, SECONDS)
            yield running
        finally:
            running.stop()


def state_of(airflow: AirflowLab, dag_id: str, run_id: str, task_id: str) -> Callable[[], str | None]:
    """Asks for the state of a task."""

    def state() -> str | None:
        with airflow.rest() as rest:
            return next(task.state for task in rest.task_instances(dag_id, run_id) if task.task_id == task_id)

    return state


def said_by(code: str, folder: Path, **environment: str) -> str:
    """What a Python process prints that has an Airflow home of its own."""
    given = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        **environment,
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-3000:]
    return done.stdout
