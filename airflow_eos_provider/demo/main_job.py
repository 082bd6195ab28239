"""``eos demo``: the main job on the lab, from start to end, with proof of exactly-once.

A real Connect cluster loses a worker and duplicates records. An Airflow DAG rolls it to exactly-once under load. It
loses a worker again, without duplicates. Then Airflow and Spark write intervals, each exactly once although Spark is
killed. At the end every topic is compared with its input.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.demo import intervals, upgrade
from airflow_eos_provider.demo.connectors import FLIGHTS_TOPIC, Connectors
from airflow_eos_provider.demo.flights import Feeder
from airflow_eos_provider.demo.oracle import compare, expected_from_file, expected_from_topic
from airflow_eos_provider.demo.report import WORKERS, DemoReport
from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.record import LabOptions
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.servers.spark_connect import SparkConnect
from airflow_eos_provider.lab.teardown import take_down as take_down_lab

LAB_NAME = "demo"

#: They last for eleven minutes; the demo fails its check if they do not last.
FLIGHTS_PER_SECOND = 500

#: The broker's minimum. It sets the workers' heartbeats, for which each rebalance and each gate of a roll waits.
_SESSION_TIMEOUT_MS = 6_000

_DAG_KNOWN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How the demo is run.

    :param folder: everything of the demo; an earlier demo in it is taken down and replaced.
    :param keep: leave lab and Airflow up at the end.
    :param days: how many daily intervals to write after the upgrade.
    """

    folder: Path = Path(".eos/demo")
    keep: bool = False
    days: int = 3

    @property
    def report_file(self) -> Path:
        return self.folder / "report.json"


def run_demo(options: DemoOptions, console: Console) -> DemoReport:
    """Run the demo, show it, write its report.

    Whatever happens, Ctrl-C and SIGTERM included, all that was started is taken down, unless it is to be kept.

    :raises ConfigurationError: another demo is running in the same folder.
    :raises EosError: a stage failed; the report has what was found until then.
    """
    report = DemoReport(days=options.days)
    with _only_demo_in(options.folder), _signals_as_interrupts(), Screen(console) as screen:
        kept = False
        try:
            _Demo(options, screen, report).run()
            kept = options.keep
        except BaseException as error:
            report.failure = f"{type(error).__name__}: {error}"
            kept = options.keep and isinstance(error, Exception)
            raise
        finally:
            if not kept:
                screen.stage("Take everything down")
                with _uninterruptible():
                    _clear(options.folder, keep_data=not report.ok)
            report.timings = screen.timings()
            report.write(options.report_file)
            if not report.ok:
                screen.say(f"Logs: {options.folder / 'lab'} and {options.folder / 'airflow'}", "yellow")
                if kept:
                    screen.say(f"Everything is left running. Stop it: eos demo --down --dir {options.folder}", "yellow")
    report.show(console)
    return report


def take_down(folder: Path) -> None:
    """End what a kept or a killed demo left running in this folder.

    :raises ConfigurationError: a demo is running there right now.
    """
    if folder.is_dir():
        with _only_demo_in(folder), _signals_as_interrupts():
            _clear(folder)


class _Demo:
    def __init__(self, options: DemoOptions, screen: Screen, report: DemoReport) -> None:
        self._options = options
        self._folder = options.folder.resolve()
        self._screen = screen
        self._report = report

    def run(self) -> None:
        """Every stage, in order."""
        lab = self._start_lab()
        spark = lab.spark_connect({DAEMON_PROPERTY: DAEMON_MODULE})
        data = self._folder / "data"
        with ThreadPoolExecutor(1) as beside, Feeder(data / "flights.jsonl", rate=FLIGHTS_PER_SECOND) as feeder:
            starting = beside.submit(self._start_airflow, lab, spark, data / "january.jsonl")
            try:
                connectors = Connectors(lab, feeder.path)
                self._duplicate(connectors)
                self._screen.stage("Wait for Airflow, which has been starting since the load began")
                airflow = starting.result()
            except BaseException:
                if not starting.done():  # then it ends at once
                    AirflowLab.clear(self._folder / "airflow")
                raise
            starting_spark = beside.submit(spark.start)
            self._upgrade(airflow)
            self._kill(connectors)
            self._fence(connectors)
            self._report.load_lasted = feeder.is_running
            self._report.load = {"lines": feeder.stop(), "rate": FLIGHTS_PER_SECOND}
            starting_spark.result()
        summaries = self._write_intervals(airflow, lab, spark)
        self._compare(connectors, feeder.path, summaries)

    def _start_lab(self) -> Lab:
        self._screen.stage(f"Start Kafka, PostgreSQL and {WORKERS} Connect workers, exactly-once disabled")
        _clear(self._folder)
        for name in ("lab", "airflow", "data", "dags"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        options = LabOptions(
            name=LAB_NAME,
            workers=WORKERS,
            mode=Mode.DISABLED,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            root=self._folder / "lab",
            postgres=True,
        )
        return Lab.up(options)

    def _start_airflow(self, lab: Lab, spark: SparkConnect, january: Path) -> AirflowLab:
        intervals.prepare(lab, january)
        dags = self._folder / "dags"
        dags.mkdir(parents=True, exist_ok=True)
        (dags / f"{upgrade.DAG_ID}.py").write_text(upgrade.DAG_FILE, encoding="utf-8")
        (dags / f"{intervals.DAG_ID}.py").write_text(intervals.dag_file(january), encoding="utf-8")
        connections = {
            upgrade.CONNECTION_ID: {
                "conn_type": "kafka_connect",
                "host": lab.connect_urls[0],
                "extra": {"cluster_file": str(lab.cluster_file)},
            },
            **intervals.connections(lab, spark),
        }
        options = AirflowOptions(
            folder=self._folder / "airflow",
            dags_folder=dags,
            postgres=lab.postgres,
            connections={name: json.dumps(connection) for name, connection in connections.items()},
            environment={
                "AIRFLOW__EOS__CONNECTION_FILES_FOLDERS": str(lab.cluster_file.parent),
                # Airflow learns of a task's end at this pace; the default is 5 s.
                "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            },
        )
        airflow = AirflowLab.start(options)
        for dag_id in (upgrade.DAG_ID, intervals.DAG_ID):
            wait_for_dag(airflow, dag_id, _DAG_KNOWN_SECONDS)
        self._report.airflow = {"url": airflow.url}
        return airflow

    def _duplicate(self, connectors: Connectors) -> None:
        self._screen.stage(f"Load: {FLIGHTS_PER_SECOND} flights a second by a file source, copied by a mirror")
        connectors.create()
        self._screen.stage("Kill a worker without exactly-once (SIGKILL)")
        worker = connectors.kill_worker(with_duplicates=True)
        self._screen.say(f"{worker} was killed: {connectors.drain(FLIGHTS_TOPIC).repeats:,} duplicates", "yellow")

    def _upgrade(self, airflow: AirflowLab) -> None:
        self._screen.stage("Roll the cluster to exactly-once by an Airflow DAG, under load")
        with airflow.rest() as rest:
            self._report.upgrade.run(rest, self._screen.say)
        self._report.airflow |= {"dag_id": upgrade.DAG_ID, "run_id": self._report.upgrade.run_id}
        self._screen.say("every worker is proven: preparing, then enabled", "green")

    def _kill(self, connectors: Connectors) -> None:
        self._screen.stage("Kill a worker again, now with exactly-once")
        started = time.monotonic()
        worker = connectors.kill_worker()
        seconds = round(time.monotonic() - started, 1)
        self._report.killed = {"worker": worker, "tasks_running_again_seconds": seconds}
        self._screen.say(f"{worker} was killed; all tasks work again after {seconds} s", "green")

    def _fence(self, connectors: Connectors) -> None:
        self._screen.stage("Take the mirror from three tasks to two: Connect fences the old tasks")
        self._report.fencing = fencing = connectors.reconfigure_mirror()
        ids = ", ".join(sorted(fencing.fenced))
        self._screen.say(f"seen fenced: {ids}", "green" if fencing.is_real else "bold red")

    def _write_intervals(self, airflow: AirflowLab, lab: Lab, spark: SparkConnect) -> dict[str, dict[str, Any]]:
        """Write the days; return the results of their tasks by interval."""
        days = self._options.days
        self._screen.stage(f"Backfill {days} day{'s' * (days > 1)} by Airflow and Spark; kill Spark while it writes")
        with airflow.rest() as rest, intervals.killed_while_it_writes(spark, lab.kafka) as killed:
            self._report.killed_in_intervals = killed
            summaries = intervals.backfill(rest, days)
        for name, summary in sorted(summaries.items()):
            self._screen.say(f"{name}: {summary['records']} records, try {summary['tries']}", "green")
        return summaries

    def _compare(self, connectors: Connectors, path: Path, summaries: dict[str, dict[str, Any]]) -> None:
        self._screen.stage("Compare every topic with its source, record by record")
        report, since = self._report, self._report.upgrade.enabled_at_ms
        flights, mirrored = connectors.drain_both()
        report.source = compare(expected_from_file(path), flights, since)
        report.mirror = compare(expected_from_topic(flights), mirrored, since)
        drained = connectors.drain(intervals.TOPIC)
        report.interval_topic, report.intervals = intervals.compare_days(drained, self._options.days, summaries)
        for topic in (report.source, report.mirror, report.interval_topic):
            for example in topic.examples:
                self._screen.say(f"{topic.topic}: {example}", "yellow")


def _clear(folder: Path, *, keep_data: bool = False) -> None:
    """End what a demo left in this folder: this one, one that was kept, or one that was killed."""
    AirflowLab.clear(folder.resolve() / "airflow")
    take_down_lab(folder.resolve() / "lab" / LAB_NAME, keep_data=keep_data)


@contextlib.contextmanager
def _only_demo_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when this process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"A demo is running in {folder}.", remedy="Wait for its end, or name another folder with --dir."
            ) from error
        yield


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)


def _signals_as_interrupts() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does, so that what it started is taken down."""
    return _handled_by(_interrupt, signal.SIGTERM, signal.SIGHUP)


def _uninterruptible() -> contextlib.AbstractContextManager[None]:
    """Taking down is bounded and must not be interrupted."""
    return _handled_by(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
