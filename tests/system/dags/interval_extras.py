"""What the interval DAG of the repository does not use: the sensor, deferred, and the decorator."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor

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
        from airflow_eos_provider.demo.flights_by_month import flights

        folder = os.environ["AIRFLOW_VAR_FLIGHTS_FOLDER"]
        return flights(spark, interval, folder).where(f"cast(key as int) <= {limit}")

    wait >> decorated(500)
