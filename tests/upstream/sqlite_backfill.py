"""On SQLite a backfill of several runs at once ends with "database is locked".

SQLite lets one process write at a time, and has no locks of rows. Scheduler, API server and triggerer all write; a
process that waits longer than its patience fails, and its task or its component with it. Mostly the backfill itself
cannot be made.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_eos_provider.lab.servers.airflow import COMPONENTS, AirflowLab
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRestError
from tests.upstream.own_airflow import SECONDS, own_airflow
from tests.upstream.shown import StartLab
from tests.waiting import wait_for

DAG_ID = "days"
DAG = f"""
from datetime import datetime
from airflow.sdk import DAG, CronDataIntervalTimetable, task

with DAG(
    "{DAG_ID}",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2013, 1, 1),
    end_date=datetime(2014, 1, 1),
    catchup=False,
) as dag:

    @task
    def work() -> int:
        return 1

    for number in range(4):
        work.override(task_id=f"work_{{number}}")()
"""
FIRST, DAYS, AT_ONCE = datetime(2013, 1, 1, tzinfo=UTC), 16, 8

LOCKED = "database is locked"


def show(start: StartLab) -> str:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-sqlite-", ignore_cleanup_errors=True) as folder:
        environment = {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW__CORE__PARALLELISM": str(AT_ONCE),
        }
        with own_airflow(start, {DAG_ID: DAG}, environment=environment) as airflow, airflow.rest() as rest:
            rest.unpause(DAG_ID)
            try:
                rest.backfill(DAG_ID, FIRST, FIRST + timedelta(days=DAYS - 1), max_active_runs=AT_ONCE)
            except AirflowRestError as error:
                if LOCKED not in error.found.lower():
                    raise
                return f"a backfill of {DAYS} days was refused: {error.found}"

            def is_locked() -> bool:
                if _locked(airflow):
                    return True
                states = rest.run_states(DAG_ID).values()
                assert len(states) < DAYS or not FINAL_STATES.issuperset(states), f"all days have ended: {states}"
                return False

            wait_for("the database to be locked", is_locked, SECONDS)
            return f'{DAYS} days, {AT_ONCE} at once: "{LOCKED}" in the log of {", ".join(_locked(airflow))}'


def _locked(airflow: AirflowLab) -> list[str]:
    """Where the database was locked: components, and ``task`` for a task's own log."""
    logs = [(name, airflow.log(name)) for name in COMPONENTS]
    logs += [("task", path) for path in Path(airflow.home / "logs").rglob("attempt=*.log")]
    found = [name for name, path in logs if path.exists() and LOCKED in path.read_text("utf-8", "replace")]
    return sorted(set(found))
