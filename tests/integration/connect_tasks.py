"""Runs the two kinds of interval tasks of Airflow, each an interval, through the connection ``shared``.

A process of its own, as each task of Airflow's has: a session is made for the whole process.

Usage: ``python connect_tasks.py TOPIC FOLDER INTERVAL INTERVAL``; it prints the two summaries as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_eos_provider.decorators.interval_run import interval_run_task
from airflow_eos_provider.operators.interval_run import IntervalRunOperator

JOBS = Path(__file__).with_name("interval_jobs.py")


def main(topic: str, folder: str, first: str, second: str) -> None:
    common: dict[str, Any] = {"pipeline": topic, "topic": topic, "slices": 2, "conn_id": "shared"}
    with DAG("through_connect"):
        operator = IntervalRunOperator(
            task_id="operator",
            function=f"{JOBS}:of_folder",
            arguments={"folder": folder},
            interval=first,
            **common,
        )

        def decorated(spark: Any, sc: Any, interval: Any, folder: str) -> Any:
            assert sc is None
            return spark.read.parquet(f"{folder}/{interval.start:%Y-%m-%d}")

        decorator = interval_run_task(decorated, task_id="decorated", interval=second, **common)(folder).operator
    for task in (operator, decorator):
        summary = task.execute({"outlet_events": OutletEventAccessors(), "ti": None})
        sys.stdout.write(f"SUMMARY {json.dumps(summary)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
