"""The demo's second part: the days of January 2013, backfilled through Airflow, while drivers and workers are killed.

All days share one Spark Connect server on this machine, so none starts a JVM of its own. What was written is compared
with the data set afterwards, day by day, by a reader of committed records.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.demo.flights import flight_lines
from airflow_eos_provider.demo.flights_by_month import hours_between, write_months
from airflow_eos_provider.demo.oracle import Comparison, Drained, compare, digest, expected_from_values
from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.python_needs import DAEMON_MODULE
from airflow_eos_provider.lab.airflow import AirflowLab
from airflow_eos_provider.lab.airflow_rest import FINAL_STATES, AirflowRest, LogCursor
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.security import Principal
from airflow_eos_provider.lab.spark_connect import SparkConnect
from airflow_eos_provider.processes import ProcessIdentity, identify

DAG_ID = "flights_daily"
PIPELINE = "flights.daily"
GROUP_ID = "eos-intervals"
TOPIC = "flights.daily"
TOPIC_PARTITIONS = 3

KAFKA_CONNECTION_ID = "kafka_default"
SPARK_CONNECTION_ID = "spark_default"

#: New York's midnights in winter, UTC. January 2013 has 27,004 flights in days that begin so.
FIRST_DAY = datetime(2013, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)

#: Intervals written at once: the third fills the gaps in which two others wait for Airflow's scheduler or the broker.
AT_ONCE = 3

#: Until the first interval ends, and from each to the next: many times what two busy cores need.
INTERVAL_SECONDS = 900.0

_POLL_SECONDS = 1.0
_LOOK_SECONDS = 0.2
_LOOK_FOR_DRIVER_SECONDS = 1.0

#: A day of flights is written within half a second or so.
_LOOK_FOR_WRITER_SECONDS = 0.05

#: How long a Python worker may live before it is killed: it has then begun its transaction, or is about to.
_WORKER_LIVES_SECONDS = 0.4

_DAG_FILE = '''\
"""The demo's interval runs: the flights of 2013, day by day. Airflow finds DAGs by the words dag and airflow."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import CronDataIntervalTimetable

from airflow_eos_provider.dag_factories.intervals import interval_run_dag

dag = interval_run_dag(
    dag_id={dag_id!r},
    pipeline={pipeline!r},
    group_id={group_id!r},
    topic={topic!r},
    function="airflow_eos_provider.demo.flights_by_month:flights",
    arguments={{"folder": {folder!r}}},
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York"),
    start_date=datetime(2013, 1, 1),
    end_date=datetime(2014, 1, 1),
    max_active_runs={at_once},
    retry_delay=timedelta(seconds=3),
    slices=4,
    tasks=2,
    retries=6,
)
'''


class IntervalsFailedError(EosError):
    """The backfill did not end as it should."""


@dataclass(slots=True)
class IntervalsReport:
    """What the second part found.

    :param intervals: one entry a day: ``interval``, ``records``, ``duplicates``, ``missing``, ``tries``, ``seconds``.
    :param killed: what was killed on the way: ``what``, ``pid``, ``completed`` (intervals complete by then).
    """

    days: int = 0
    intervals: list[dict[str, Any]] = field(default_factory=list)
    comparison: Comparison | None = None
    killed: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def promises(self) -> dict[str, bool | None]:
        """The promises of this part, None for what was not seen; nothing if the part was left out."""
        if self.days == 0:
            return {}
        kinds = {entry["what"] for entry in self.killed}
        compared = self.comparison
        complete = len(self.intervals) == self.days and all(entry["complete"] for entry in self.intervals)
        return {
            "every interval is complete": complete if self.intervals else None,
            "flights.daily: nothing is missing": compared.nothing_missing if compared else None,
            "flights.daily: nothing is double": compared.nothing_double if compared else None,
            "the Spark Connect server and a Python worker were killed on the way": kinds == {"server", "worker"}
            if self.intervals or self.killed
            else None,
        }


def dag_file(folder: Path) -> str:
    """The text of the DAG file.

    :param folder: where the flights are, month by month.
    """
    return _DAG_FILE.format(
        dag_id=DAG_ID,
        pipeline=PIPELINE,
        group_id=GROUP_ID,
        topic=TOPIC,
        folder=str(folder),
        at_once=AT_ONCE,
    )


def connections(lab: Lab, spark: SparkConnect | None = None) -> dict[str, dict[str, Any]]:
    """The connections that the DAG names.

    :param spark: whose Spark the days share; without one each has its own, ``local[2,4]``: in the process of its
        driver, two tasks at once, four tries each.
    """
    login = lab.security.client(Principal.INTERVAL_RUNS) if lab.security else {}
    return {
        KAFKA_CONNECTION_ID: {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers, **login}},
        SPARK_CONNECTION_ID: {"conn_type": "spark", "host": "local[2,4]"}
        if spark is None
        else {"conn_type": "spark_connect", "host": "127.0.0.1", "port": spark.port},
    }


def prepare(lab: Lab, folder: Path, days: int) -> None:
    """Make the topic and write the files."""
    lab.create_topic(TOPIC, TOPIC_PARTITIONS)
    last = FIRST_DAY + days * DAY - timedelta(hours=1)
    write_months(folder, months=frozenset({f"{FIRST_DAY:%Y-%m}", f"{last:%Y-%m}"}))


class Backfill:
    """A backfill of the first days of 2013, newest first, and what is killed meanwhile.

    :param days: how many; at most a month.
    :param spark: the server that the days share.
    :ivar killed: what was killed so far.
    """

    def __init__(self, airflow: AirflowLab, rest: AirflowRest, screen: Screen, days: int, spark: SparkConnect) -> None:
        self._airflow = airflow
        self._spark = spark
        self._rest = rest
        self._screen = screen
        self._days = days
        self._done: dict[str, dict[str, Any]] = {}
        self.killed: list[dict[str, Any]] = []

    def run(self) -> None:
        """Start the backfill and follow it to its end.

        :raises IntervalsFailedError: a run failed, or none ended for :data:`INTERVAL_SECONDS`.
        """
        last = FIRST_DAY + (self._days - 1) * DAY
        self._rest.unpause(DAG_ID)
        self._rest.backfill(DAG_ID, FIRST_DAY, last, max_active_runs=AT_ONCE, backwards=True)
        self._screen.say(f"asked Airflow to backfill {self._days} days of {DAG_ID}, backwards, {AT_ONCE} at once")
        with Killer(self._airflow, self._screen, _killed_after(self._days), self._spark) as killer:
            self.killed = killer.killed
            self._follow(killer)

    @property
    def summaries(self) -> Mapping[str, Mapping[str, Any]]:
        """What each task returned, by interval."""
        return self._done

    def _follow(self, killer: Killer) -> None:
        deadline = time.monotonic() + INTERVAL_SECONDS
        finished: set[str] = set()
        while True:
            states = self._rest.run_states(DAG_ID)
            for run_id, state in states.items():
                if state in FINAL_STATES and run_id not in finished:
                    finished.add(run_id)
                    deadline = time.monotonic() + INTERVAL_SECONDS
                    self._show(run_id, state)
            killer.completed = len(self._done)
            if len(finished) >= self._days:
                return
            running = sum(state == "running" for state in states.values())
            self._screen.now(f"{len(finished)} of {self._days} intervals done, {running} being written")
            if time.monotonic() > deadline:
                raise IntervalsFailedError(
                    f"{len(finished)} of {self._days} intervals are done, and none has ended for "
                    f"{INTERVAL_SECONDS:.0f} s.",
                    remedy=f"See the task logs in {self._airflow.home / 'logs'}.",
                )
            time.sleep(_POLL_SECONDS)

    def _show(self, run_id: str, state: str) -> None:
        (task,) = self._rest.task_instances(DAG_ID, run_id)
        if state != "success":
            lines = self._rest.new_log_lines(LogCursor(DAG_ID, run_id, task.task_id, task.try_number))
            for line in lines[-15:]:
                self._screen.say(f"  {run_id}: {line.text}", "yellow")
            raise IntervalsFailedError(f"The run {run_id} ended as {state}; the end of its log is above.")
        summary = self._rest.xcom(DAG_ID, run_id, task.task_id)
        self._done[summary["interval"]] = {**summary, "tries": task.try_number}
        again = f", in try {task.try_number}" if task.try_number > 1 else ""
        self._screen.say(
            f"{summary['interval']}: {summary['records']:,} records in {summary['slices']} slices, "
            f"{summary['seconds']:.1f} s{again}",
            "green",
        )


def _killed_after(days: int) -> dict[str, int]:
    """What is killed, in this order, and after how many complete intervals.

    A few intervals may all be under way at once, and be written before a second victim is found among them. Then the
    server is the first: the next tries of its intervals have a Python worker for certain.
    """
    if days > 2 * AT_ONCE:
        return {"worker": days // 4, "server": days // 2}
    return {"server": 0, "worker": 0}


_VICTIMS = {
    "worker": "a Python worker of Spark",
    "driver": "a Spark driver",
    "server": "the Spark Connect server, with all that its sessions do",
    "task": "the process of an Airflow task, whose driver lives on",
}


class Killer(threading.Thread):
    """Kills processes that write intervals by SIGKILL, one after the other, each while it writes.

    :param after: how many intervals have to be complete before the process is killed, by what it is: a Python
        ``worker`` of Spark, a Spark ``driver``, the process of an Airflow ``task`` that has started a driver, or the
        ``server``, which is started again.
    :param spark: the server that the intervals share; None where each has a driver of its own.
    :ivar completed: set from outside.
    """

    def __init__(
        self, airflow: AirflowLab, screen: Screen, after: Mapping[str, int], spark: SparkConnect | None = None
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self.completed = 0
        self.killed: list[dict[str, Any]] = []
        self._airflow = airflow
        self._screen = screen
        self._after = after
        self._spark = spark
        self._ended = threading.Event()

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(timeout=30)

    def run(self) -> None:
        kill = self._kill if self._spark is None else partial(self._kill_shared, self._spark)
        for what, after in self._after.items():
            while not self._ended.wait(_LOOK_FOR_DRIVER_SECONDS if self._spark is None else _LOOK_FOR_WRITER_SECONDS):
                if self.completed >= after and kill(what):
                    break

    def _kill_shared(self, spark: SparkConnect, what: str) -> bool:
        """Kill the server, or one of its Python workers, while that writes; the workers outlive their tasks."""
        server = spark.process
        writer = next(filter(_is_writing, server.family() if server else ()), None)
        victim = server if what == "server" else writer
        if writer is None or victim is None:
            return False
        victim.stop(kill=True)
        self._killed(what, victim.pid)
        if what == "server":
            spark.start()
            self._screen.say("the Spark Connect server is up again; the intervals go on in their next tries")
        return True

    def _killed(self, what: str, pid: int) -> None:
        self.killed.append({"what": what, "pid": pid, "completed": self.completed})
        self._screen.say(f"SIGKILL to {_VICTIMS[what]} (pid {pid}) while it writes an interval", "bold red")

    def _kill(self, what: str) -> bool:
        """Find a driver and follow it until it has a Python worker; kill the one or the other."""
        for driver in self._drivers():
            worker = self._worker_of(driver)
            if worker is None:
                continue
            processes = {"worker": identify(worker.pid), "driver": identify(driver.pid), "task": self._task_of(driver)}
            victim, its_driver = processes[what], processes["driver"]
            if victim is None or its_driver is None or self._ended.wait(_WORKER_LIVES_SECONDS):
                continue
            if not (victim.is_alive() and its_driver.is_alive()):  # else its task may have reported its end already
                continue
            victim.stop(kill=True)
            self._killed(what, victim.pid)
            return True
        return False

    def _drivers(self) -> list[psutil.Process]:
        found = []
        for identity in self._airflow.processes():
            command = identity.command_line()
            if (
                command
                and "java" in Path(command[0]).name
                and any("/interval/spark/job.py" in part for part in command)
            ):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(identity.pid))
        return found

    def _worker_of(self, driver: psutil.Process) -> psutil.Process | None:
        """A Python worker of this driver: PySpark's daemon forks them. None when the driver ends without one."""
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                below = {process.pid: process for process in driver.children(recursive=True)}
            except psutil.NoSuchProcess:
                return None
            for process in below.values():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    parent = below.get(process.ppid())
                    if parent is not None and _is_daemon(parent) and _is_daemon(process):
                        return process
        return None

    def _task_of(self, driver: psutil.Process) -> ProcessIdentity | None:
        """The process that runs the task: spark-submit replaces itself by the driver's JVM. None if it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = identify(driver.ppid())
            return parent if parent in self._airflow.processes() else None
        return None


def _is_writing(process: ProcessIdentity) -> bool:
    """Whether this is a Python worker of Spark with clients of Kafka, which it has while it writes as a task."""
    try:
        running = psutil.Process(process.pid)
        if not (_is_daemon(running) and _is_daemon(running.parent() or running)):
            return False
        # To its JVM a worker has one connection; more are those of the clients.
        return sum(each.status == psutil.CONN_ESTABLISHED for each in running.net_connections(kind="tcp")) > 1
    except psutil.Error:
        return False


def _is_daemon(process: psutil.Process) -> bool:
    return not {DAEMON_MODULE, "pyspark.daemon"}.isdisjoint(process.cmdline())


def compare_days(
    drained: Drained, days: int, summaries: Mapping[str, Mapping[str, Any]]
) -> tuple[Comparison, list[dict[str, Any]]]:
    """The topic beside the data set, in all and day by day.

    :param summaries: what the tasks returned, by interval.
    """
    flights = list(hours_between(flight_lines(), FIRST_DAY, FIRST_DAY + days * DAY))
    expected = expected_from_values((value for _, value in flights), "the data set")
    return compare(expected, drained), [_day(number, flights, drained, summaries) for number in range(days)]


def _day(
    number: int,
    flights: Sequence[tuple[str, bytes]],
    drained: Drained,
    summaries: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    start = FIRST_DAY + number * DAY
    name = f"{_text(start)}/{_text(start + DAY)}"
    copies = [len(drained.copies.get(digest(value), ())) for value in _of_day(flights, start)]
    summary = summaries.get(name, {})
    return {
        "interval": name,
        "records": sum(copies),
        "duplicates": sum(count - 1 for count in copies if count > 1),
        "missing": sum(1 for count in copies if count == 0),
        # What `complete` says has to be what is there.
        "complete": summary.get("records") == sum(copies),
        "tries": summary.get("tries"),
        "seconds": summary.get("seconds"),
    }


def _of_day(flights: Sequence[tuple[str, bytes]], start: datetime) -> Iterator[bytes]:
    first, last = _text(start), _text(start + DAY)
    return (value for hour, value in flights if first <= hour < last)


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
