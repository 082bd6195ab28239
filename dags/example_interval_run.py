"""``@task.interval_run``: a task whose rows reach Kafka exactly once; and a DAG that waits for each day with a sensor.

The Variable ``flights_folder`` names a folder with a file of JSON lines for each month.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Variable, task

from airflow_eos_provider.sensors import IntervalCompleteSensor

# In Airflow 3, "@daily" alone makes no data intervals.
DAYS = {
    "schedule": CronDataIntervalTimetable("@daily", timezone="UTC"),
    "start_date": datetime(2013, 1, 1),
    "end_date": datetime(2013, 12, 31),
    "catchup": False,
}

with DAG(
    dag_id="example_interval_run",
    description="Write each day's late flights into Kafka exactly once",
    doc_md="### Writes each day's late flights into the topic `flights.late` exactly once",
    **DAYS,
):

    @task.interval_run(pipeline="flights.late", topic="flights.late", slices=2, conn_id="spark_default")
    def late_flights(spark: Any, interval: Any) -> Any:
        """The day's flights that left over an hour late. The line's number is the key, the line the value."""
        folder = Variable.get("flights_folder", default="/data/flights")
        hour = "get_json_object(value, '$.time_hour')"
        start, end = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (interval.start, interval.end))
        lines = spark.read.text(f"{folder}/{interval.start:%Y-%m}.jsonl").where(
            f"{hour} >= '{start}' and {hour} < '{end}' and get_json_object(value, '$.dep_delay') > 60"
        )
        return lines.selectExpr("get_json_object(value, '$.line') as key", "value")

    late_flights()

with DAG(
    dag_id="example_interval_report",
    description="Report each day of flights.late once it is complete",
    doc_md="### Waits until a day of `flights.late` is complete, and reports it",
    **DAYS,
):
    complete = IntervalCompleteSensor(task_id="complete", pipeline="flights.late", deferrable=True)

    @task
    def report(written: dict[str, Any]) -> str:
        """Called once the day is complete, with what the ledger says of it."""
        return f"{written['records']} late flights"

    report(complete.output)
