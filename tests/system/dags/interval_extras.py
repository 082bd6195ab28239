"""What the interval DAG of the repository does not use: the sensor, deferred, and the decorator."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_eos_provider.operators import IntervalRunOperator
from airflow_eos_provider.sensors import IntervalCompleteSensor

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

with DAG(
    "interval_extras",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York"),
    start_date=datetime(2013, 1, 1),
    end_date=datetime(2014, 1, 1),  # or Airflow would make a run for today, and the sensor wait for its flights
    catchup=False,
    max_active_runs=1,
):
    wait = IntervalCompleteSensor(
        task_id="wait", pipeline="flights.daily", deferrable=True, poke_interval=2, timeout=300
    )

    @task.interval_run(
        pipeline="flights.decorated",
        topic="flights.decorated",
        slices=2,
        conn_id="spark_default",
        config_kwargs=CONF,
        pipeline_options={"run_header": "eos-run"},
    )
    def decorated(spark: Any, interval: Any, limit: int) -> Any:
        from airflow_eos_provider.demo.flights import flights

        file = f"{os.environ['AIRFLOW_VAR_FLIGHTS_FOLDER']}/2013-01.jsonl"
        return flights(spark, interval, file).where(f"cast(key as int) <= {limit}")

    halves = IntervalRunOperator.partial(
        task_id="halves",
        pipeline="flights.daily",
        topic="flights.daily",
        python_callable=f"{Path(__file__).with_name('flights_source.py')}:flights",
        selects_by_bounds=True,
    ).expand(
        interval=[
            "2013-01-01T05:00:00Z/2013-01-01T17:00:00Z",
            "2013-01-01T17:00:00Z/2013-01-02T05:00:00Z",
        ]
    )

    wait >> [decorated(500), halves]
