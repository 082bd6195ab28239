"""The demo's interval runs: Airflow backfills days of January 2013 through Spark, which is killed once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_eos_provider.demo.flights import HOUR_FORMAT, january, time_hour
from airflow_eos_provider.demo.oracle import Comparison, Drained, compare, digest, expected_from_values
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest
from airflow_eos_provider.lab.servers.spark_connect import SparkConnect

DAG_ID = "flights_daily"
TOPIC = "flights.daily"
GROUP_ID = "eos-intervals"
TOPIC_PARTITIONS = 3

#: New York's midnights in winter, UTC. January 2013 has 27,004 flights in days that begin so.
FIRST_DAY = datetime(2013, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)

#: From one interval's end to the next, seconds: many times what two busy cores need.
_INTERVAL_SECONDS = 600.0

#: Each look at the backfill takes Airflow's api-server about 40 ms of CPU.
_POLL_SECONDS = 1.0

#: A slice of a day's flights is written within some tenths of a second.
_LOOK_FOR_WRITER_SECONDS = 0.03

_DAG_FILE = '''\
"""The demo's interval runs: the flights of 2013, day by day."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow_eos_provider.dag_factories.intervals import interval_run_dag

NEW_YORK = ZoneInfo("America/New_York")

dag = interval_run_dag(
    dag_id={dag_id!r},
    pipeline={topic!r},
    group_id={group_id!r},
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


class IntervalsFailedError(EosError):
    """The backfill did not end as it should."""


def dag_file(file: Path) -> str:
    """The text of the DAG file.

    :param file: with January's flights.
    """
    return _DAG_FILE.format(dag_id=DAG_ID, topic=TOPIC, group_id=GROUP_ID, file=str(file))


def prepare(lab: Lab, file: Path) -> None:
    """Make the topic and write January's flights into a file."""
    lab.create_topic(TOPIC, TOPIC_PARTITIONS)
    file.write_bytes(b"".join(january()))


def connections(lab: Lab, spark: SparkConnect) -> dict[str, dict[str, Any]]:
    """The connections that the DAG names."""
    return {
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}},
        "spark_default": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": spark.port},
    }


def backfill(rest: AirflowRest, days: int) -> dict[str, dict[str, Any]]:
    """Backfill the first days of January and wait for the end of every run.

    :returns: by interval, what its task returned, with the number of ``tries``.
    :raises IntervalsFailedError: a run failed, or none ended for :data:`_INTERVAL_SECONDS`.
    """
    rest.unpause(DAG_ID)
    rest.backfill(DAG_ID, FIRST_DAY, FIRST_DAY + (days - 1) * DAY, max_active_runs=3, backwards=True)
    done: dict[str, dict[str, Any]] = {}
    finished: set[str] = set()
    deadline = time.monotonic() + _INTERVAL_SECONDS
    while len(finished) < days:
        for run_id, state in rest.run_states(DAG_ID).items():
            if state in FINAL_STATES and run_id not in finished:
                finished.add(run_id)
                deadline = time.monotonic() + _INTERVAL_SECONDS
                summary = _summary(rest, run_id, state)
                done[summary["interval"]] = summary
        if time.monotonic() > deadline:
            raise IntervalsFailedError(
                f"{len(finished)} of {days} intervals are done; none has ended for {_INTERVAL_SECONDS:.0f} s."
            )
        time.sleep(_POLL_SECONDS)
    return done


def _summary(rest: AirflowRest, run_id: str, state: str) -> dict[str, Any]:
    (task,) = rest.task_instances(DAG_ID, run_id)
    if state != "success":
        raise IntervalsFailedError(
            f"The run {run_id} ended as {state}. The end of its log:\n{rest.log_end(DAG_ID, run_id, task)}"
        )
    return {**rest.xcom(DAG_ID, run_id, task.task_id), "tries": task.try_number}


@contextmanager
def killed_while_it_writes(spark: SparkConnect, kafka: KafkaSettings) -> Iterator[list[dict[str, Any]]]:
    """Kill the Spark Connect server once, while a task of an interval run has an open transaction; start it again.

    :returns: what was killed so far: ``what``, ``pid`` and ``transaction``.
    :raises EosError: the server does not start again, or the broker does not answer.
    """
    ended = threading.Event()
    killed: list[dict[str, Any]] = []

    def kill() -> None:
        with TransactionsClient(kafka) as transactions:
            while not ended.wait(_LOOK_FOR_WRITER_SECONDS):
                for found in transactions.list(f"{GROUP_ID}-{TOPIC}@", open_only=True):
                    server = spark.process
                    if server is not None and found.transactional_id.rpartition("-")[2].isdigit():  # a task's
                        server.stop(kill=True)
                        killed.append({"what": "server", "pid": server.pid, "transaction": found.transactional_id})
                        spark.start()
                        return

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(kill)
        try:
            yield killed
        finally:
            ended.set()
        killer.result()


def compare_days(
    drained: Drained, days: int, summaries: Mapping[str, Mapping[str, Any]], lines: Iterable[bytes] | None = None
) -> tuple[Comparison, list[dict[str, Any]]]:
    """Compare the topic with the data set, as a whole and day by day.

    :param summaries: what the tasks returned, by interval.
    :param lines: the data set, January by default.
    """
    bounds = [f"{FIRST_DAY + number * DAY:{HOUR_FORMAT}}" for number in range(days + 1)]
    by_day: dict[str, list[bytes]] = {start: [] for start in bounds[:-1]}
    for line in lines if lines is not None else january():
        day = max((start for start in bounds if start <= time_hour(line)), default="")
        by_day.get(day, []).append(line.rstrip(b"\n"))
    found = []
    for start, end in pairwise(bounds):
        name = f"{start}/{end}"
        counts = [len(drained.copies.get(digest(value), ())) for value in by_day[start]]
        summary = summaries.get(name, {})
        found.append(
            {
                "interval": name,
                "records": sum(counts),
                "duplicates": sum(count - 1 for count in counts if count > 1),
                "missing": counts.count(0),
                # What the run's "complete" record says has to be in the topic.
                "complete": summary.get("records") == sum(counts),
                "tries": summary.get("tries"),
                "seconds": summary.get("seconds"),
            }
        )
    expected = expected_from_values((value for values in by_day.values() for value in values), "the data set")
    return compare(expected, drained), found
