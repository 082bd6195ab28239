"""``eos demo``: the main job on the lab, from start to end, with proof of exactly-once.

A real Connect cluster loses a worker and duplicates records. An Airflow DAG rolls it to exactly-once under load. It
loses a worker again, without duplicates. Then Airflow and Spark write intervals, each exactly once although Spark is
killed. At the end every topic is compared with its input.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.demo import intervals, upgrade
from airflow_eos_provider.demo.connectors import Connectors
from airflow_eos_provider.demo.flights import feed, january
from airflow_eos_provider.demo.oracle import compare, drain, expected_from_file
from airflow_eos_provider.demo.report import WORKERS, DemoReport, Screen
from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_processes import exclusive, own_processes
from airflow_eos_provider.lab.record import LabOptions
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.servers.spark_connect import SparkConnect
from airflow_eos_provider.lab.teardown import take_down as take_down_lab

#: They last for eleven minutes; the demo fails its check if they do not last.
FLIGHTS_PER_SECOND = 500

#: The broker's minimum. It sets the workers' heartbeats, for which each rebalance and each gate of a roll waits.
_SESSION_TIMEOUT_MS = 6_000

_DAG_KNOWN_SECONDS = 600.0

#: What ends the demo as Ctrl-C does.
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_demo(folder: Path, console: Console, *, keep: bool, days: int) -> DemoReport:
    """Run the demo, show it, write its report.

    Whatever happens, Ctrl-C, SIGTERM and SIGHUP included, all that was started is taken down, unless it is to be kept.
    Its files are removed with it, unless the demo failed: then they have the reason.

    :param folder: everything of the demo; what an earlier one has left there is reported and taken down.
    :param days: how many daily intervals to write after the upgrade.
    """
    report = DemoReport(days=days)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_demo_in(folder), Screen(console) as screen:
        _on_interrupts(_interrupt)
        interrupted = False
        try:
            _run(folder, screen, report)
        except BaseException as error:
            report.failure = f"{type(error).__name__}: {error}"
            interrupted = not isinstance(error, Exception)
            raise
        finally:
            if interrupted or not keep:
                _on_interrupts(signal.SIG_IGN)  # taking down is bounded and must not be interrupted
                screen.stage("Take everything down")
                _clear(folder, keep_files=not (interrupted or report.ok))
            if not interrupted:
                report.timings = screen.timings()
                report.write(folder / "report.json")
                if not report.ok:
                    screen.say(f"Logs: {folder / 'lab' / 'demo'}")
                    if keep:
                        screen.say(f"Everything is left running. Stop it: eos demo --down --dir {folder}")
    report.show(console)
    return report


def take_down(folder: Path) -> int:
    """Take down a demo that was kept or killed, and remove its files; returns how many of its processes ran."""
    if not folder.is_dir():
        return 0
    with _only_demo_in(folder):
        return _clear(folder)


def lab_folder(folder: Path) -> Path:
    """The lab of the demo in this folder, with Airflow and the data inside."""
    return folder.resolve() / "lab" / "demo"


def _run(folder: Path, screen: Screen, report: DemoReport) -> None:
    """Every stage, in order."""
    stage = screen.stage
    stage(f"Start Kafka, PostgreSQL and {WORKERS} Connect workers, exactly-once disabled")
    if found := _clear(folder):
        screen.say(f"Ended {found} process{'es' * (found > 1)} of an earlier demo in {folder}.")
    (folder / "report.json").unlink(missing_ok=True)
    lab = Lab.up(
        LabOptions(
            name="demo",
            workers=WORKERS,
            mode=Mode.DISABLED,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            root=lab_folder(folder).parent,
            postgres=True,
        )
    )
    spark = lab.spark_connect({DAEMON_PROPERTY: DAEMON_MODULE})
    source, fed = lab.data_dir / "flights.jsonl", threading.Event()
    source.touch()
    with ThreadPoolExecutor(2) as background, ExitStack() as stack:
        stack.callback(fed.set)
        session = stack.enter_context(ConnectSession(lab.cluster()))
        feeding = background.submit(feed, source, FLIGHTS_PER_SECOND, fed)
        starting = background.submit(_start_airflow, lab, spark)
        try:
            stage(f"Load: {FLIGHTS_PER_SECOND} flights a second by a file source, copied by a mirror")
            connectors = Connectors(lab, session, source)
            connectors.create()
            stage("Kill a worker without exactly-once (SIGKILL)")
            connectors.kill_worker(with_duplicates=True)
            stage("Wait for Airflow, which has been starting since the load began")
            airflow = starting.result()
        except BaseException:
            if not starting.done():  # then it ends at once
                AirflowLab.clear(lab.root / "airflow")
            raise
        starting_spark = background.submit(spark.start)
        with airflow.rest() as rest:
            stage("Roll the cluster to exactly-once by an Airflow DAG, under load")
            report.airflow = {"url": airflow.url, "dag_id": upgrade.DAG_ID}
            report.upgrade.run(rest)
            report.airflow["run_id"] = report.upgrade.run_id
            stage("Kill a worker again, now with exactly-once")
            report.killed = connectors.kill_worker()
            stage("Take the mirror from three tasks to two: Connect fences the old tasks")
            report.fencing = connectors.reconfigure_mirror()
            lasted = feeding.running()
            fed.set()
            report.load = {"lasted": lasted, "lines": feeding.result(), "rate": FLIGHTS_PER_SECOND}
            starting_spark.result()
            stage(f"Backfill {counted(report.days, 'day')} by Airflow and Spark; kill Spark while it writes")
            intervals.start_backfill(rest, report.days)
            report.killed_in_intervals = [intervals.kill_while_it_writes(spark, lab.kafka)]
            summaries = intervals.wait_for_backfill(rest, report.days)
        stage("Compare every topic with its source, record by record")
        flights, mirrored = connectors.drain_both()
        report.source = compare(expected_from_file(source), flights, report.upgrade.enabled_at_ms)
        report.mirror = compare(flights, mirrored, report.upgrade.enabled_at_ms)
        drained = drain(lab.kafka, intervals.TOPIC)
        report.interval_topic, report.intervals = intervals.compare_days(drained, report.days, summaries)


def _start_airflow(lab: Lab, spark: SparkConnect) -> AirflowLab:
    lab.create_topic(intervals.TOPIC, intervals.TOPIC_PARTITIONS)
    data, dags = lab.data_dir / "january.jsonl", lab.root / "dags"
    data.write_bytes(b"".join(january()))
    dags.mkdir()
    (dags / f"{upgrade.DAG_ID}.py").write_text(upgrade.DAG_FILE, encoding="utf-8")
    (dags / f"{intervals.DAG_ID}.py").write_text(intervals.dag_file(data), encoding="utf-8")
    connections = {
        upgrade.CONNECTION_ID: {
            "conn_type": "kafka_connect",
            "host": lab.connect_urls[0],
            "extra": {"cluster_file": str(lab.cluster_file)},
        },
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}},
        "spark_default": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": spark.port},
    }
    airflow = AirflowLab.start(
        AirflowOptions(
            folder=lab.root / "airflow",
            dags_folder=dags,
            postgres=lab.postgres,
            connections={name: json.dumps(connection) for name, connection in connections.items()},
            environment={
                "AIRFLOW__EOS__CONNECTION_FILES_FOLDERS": str(lab.root),
                # Airflow learns of a task's end at this pace; the default is 5 s.
                "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            },
        )
    )
    for dag_id in (upgrade.DAG_ID, intervals.DAG_ID):
        wait_for_dag(airflow, dag_id, _DAG_KNOWN_SECONDS)
    return airflow


def _clear(folder: Path, *, keep_files: bool = False) -> int:
    """End a demo of this folder, in any state, and remove its files; returns how many processes it had."""
    lab = lab_folder(folder)
    found = AirflowLab.clear(lab / "airflow") + len(own_processes(lab, None))
    take_down_lab(lab, keep_data=keep_files)
    return found


def _on_interrupts(handler: Callable[..., Any] | signal.Handlers) -> None:
    for number in _INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup, or a shell's background
            signal.signal(number, handler)


def _interrupt(*_: object) -> NoReturn:
    _on_interrupts(signal.SIG_IGN)
    raise KeyboardInterrupt


def _only_demo_in(folder: Path) -> AbstractContextManager[None]:
    return exclusive(folder.absolute(), lambda line: None, wait_seconds=0)
