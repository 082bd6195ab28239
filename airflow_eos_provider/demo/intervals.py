"""The demo's interval runs: Airflow backfills days of January 2013 through Spark, which is killed once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_eos_provider.demo.flights import HOUR_FORMAT, january
from airflow_eos_provider.demo.oracle import Comparison, Drained, compare
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest
from airflow_eos_provider.lab.servers.spark_connect import SparkConnect
from airflow_eos_provider.lab.waiting import until

DAG_ID = "flights_daily"
TOPIC = "flights.daily"
TOPIC_PARTITIONS = 3

#: New York's midnights in winter, UTC. January 2013 has 27,004 flights in days that begin so.
FIRST_DAY = datetime(2013, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)

#: Bound of one day's run, seconds: many times what two busy cores need.
_DAY_SECONDS = 600.0

#: Each look at the backfill takes Airflow's api-server about 40 ms of CPU.
_POLL_SECONDS = 1.0

#: A slice of a day's flights is written within some tenths of a second.
_LOOK_FOR_WRITER_SECONDS = 0.03

_DAG_FILE = '''\
"""The demo's interval runs: the flights of 2013, day by day."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow_eos_provider.dag_factories.intervals import interval_run_dag

NEW_YORK = ZoneInfo("America/New_York")

dag = interval_run_dag(
    dag_id={dag_id!r},
    pipeline={topic!r},
    topic={topic!r},
    python_callable="airflow_eos_provider.demo.flights:flights",
    op_kwargs={{"file": {file!r}}},
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=NEW_YORK),
    end_date=datetime(2013, 12, 31, tzinfo=NEW_YORK),
    max_active_runs=3,
    retry_delay=timedelta(seconds=1),
    slices=4,
    spark_parallelism=2,
    retries=6,
)
'''


def dag_file(file: Path) -> str:
    """The text of the DAG file, whose runs read this file of flights."""
    return _DAG_FILE.format(dag_id=DAG_ID, topic=TOPIC, file=str(file))


def start_backfill(rest: AirflowRest, days: int) -> None:
    """Ask Airflow for the runs of the first days of January, the last day first."""
    rest.unpause(DAG_ID)
    rest.backfill(DAG_ID, FIRST_DAY, FIRST_DAY + (days - 1) * DAY, max_active_runs=3, backwards=True)


def kill_while_it_writes(spark: SparkConnect, kafka: KafkaSettings) -> dict[str, Any]:
    """Kill the Spark Connect server while a task of an interval run has an open transaction; start it again."""
    with TransactionsClient(kafka) as transactions:

        def writers() -> list[str]:
            found = transactions.list(f"{DEFAULT_GROUP_ID}-{TOPIC}@", open_only=True)
            return [one.transactional_id for one in found if one.transactional_id.rpartition("-")[2].isdigit()]

        writer = until(writers, "Spark to write", _DAY_SECONDS, pause_seconds=_LOOK_FOR_WRITER_SECONDS)[0]
        server = spark.running
        assert server is not None
        server.stop(kill=True)
    spark.start()
    return {"what": "server", "pid": server.pid, "transaction": writer}


def wait_for_backfill(rest: AirflowRest, days: int) -> dict[str, dict[str, Any]]:
    """Wait for the end of every run; returns by interval what its task returned, and its number of ``tries``."""

    def all_done() -> list[str]:
        states = rest.run_states(DAG_ID)
        done = [run for run, state in states.items() if state in FINAL_STATES and rest.has_succeeded(DAG_ID, run)]
        return done if len(done) == days else []

    summaries = {}
    for run_id in until(all_done, f"{days} intervals", days * _DAY_SECONDS, pause_seconds=_POLL_SECONDS):
        (task,) = rest.task_instances(DAG_ID, run_id)
        summary = rest.xcom(DAG_ID, run_id, task.task_id)
        summaries[summary["interval"]] = {**summary, "tries": task.try_number}
    return summaries


def compare_days(
    drained: Drained, days: int, summaries: Mapping[str, Mapping[str, Any]], lines: Iterable[bytes] | None = None
) -> tuple[Comparison, list[dict[str, Any]]]:
    """Compare the topic with the data set (January by default), and what each day's run returned with its flights."""
    expected = Drained("the data set")
    found = []
    flights = [(json.loads(line)["time_hour"], line.rstrip(b"\n")) for line in (january() if lines is None else lines)]
    for start, end in pairwise(f"{FIRST_DAY + number * DAY:{HOUR_FORMAT}}" for number in range(days + 1)):
        day = [flight for hour, flight in flights if start <= hour < end]
        for flight in day:
            expected.put(flight)
        interval = f"{start}/{end}"
        summary = {name: summaries.get(interval, {}).get(name) for name in ("records", "tries", "seconds")}
        found.append({"interval": interval, "complete": summary["records"] == len(day), **summary})
    return compare(expected, drained), found
