"""``eos demo``: the main job on the lab, from start to end, and the proof that it held.

A real Connect cluster is rolled from disabled over preparing to enabled by an Airflow DAG while connectors write; then
one of its workers is killed, a connector is reconfigured, and every topic is compared with what was put in. Then a
month of intervals is written by Spark, exactly once although Spark and its workers die, and compared as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.demo import intervals, rights
from airflow_eos_provider.demo.dag import DagRun
from airflow_eos_provider.demo.flights import Feeder
from airflow_eos_provider.demo.intervals import IntervalsReport
from airflow_eos_provider.demo.load import (
    FLIGHTS_TOPIC,
    MIRROR_TASKS_AFTER,
    MIRROR_TASKS_BEFORE,
    MIRROR_TOPIC,
    Load,
)
from airflow_eos_provider.demo.offsets import change_mirror_offsets
from airflow_eos_provider.demo.oracle import Drained, compare, drain, expected_from_file, expected_from_topic
from airflow_eos_provider.demo.parts import Parts
from airflow_eos_provider.demo.report import WORKERS, DemoReport
from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.airflow_rest import AirflowRestError
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.record import LabOptions
from airflow_eos_provider.lab.spark_connect import SparkConnect
from airflow_eos_provider.lab.teardown import take_down as take_down_lab

DAG_ID = "connect_exactly_once_upgrade"
CONNECTION_ID = "kafka_connect_default"
LAB_NAME = "demo"

#: Deadlines, seconds: several times what two cores need, for machines that do more at once.
RUNNING_SECONDS = 300.0
_DAG_KNOWN_SECONDS = 600.0
_DAG_SECONDS = 3600.0
_CATCH_UP_SECONDS = 300.0
_DRAIN_SECONDS = 300.0

LONG_DELAY_MS = 60_000

#: The broker's least. From it follow the workers' heartbeats, for which each rebalance and each gate of a roll waits.
_SESSION_TIMEOUT_MS = 6_000

_DAG_FILE = '''\
"""The upgrade of the demo's cluster. Airflow finds DAGs by the words dag and airflow in a file."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.upgrade import upgrade_dag

dag = upgrade_dag()
'''


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How the demo is run.

    :param folder: everything of the demo; what an earlier demo left there is taken down and replaced.
    :param keep: leave lab and Airflow up at the end.
    :param rate: flights a second; None chooses one at which they last until the end.
    :param days: how many daily intervals to backfill after the upgrade; 0 leaves that part out.
    :param rebalance_delay_ms: the workers' ``scheduled.rebalance.max.delay.ms``.
    :param secure: on a lab with TLS, logins and ACLs.
    """

    folder: Path = Path(".eos/demo")
    keep: bool = False
    rate: int | None = None
    days: int = 3
    rebalance_delay_ms: int = 3000
    secure: bool = False

    @property
    def flights_per_second(self) -> int:
        """The rate: 500, or less where tasks may have to wait for a long rebalance delay, so that flights remain."""
        if self.rate is not None:
            return self.rate
        return 500 if self.rebalance_delay_ms <= LONG_DELAY_MS else 200

    @property
    def running_seconds(self) -> float:
        """Deadline for tasks to run again: the tasks of a killed worker wait for the rebalance delay."""
        return RUNNING_SECONDS + self.rebalance_delay_ms / 1000

    @property
    def report_file(self) -> Path:
        return self.folder / "report.json"


def run_demo(options: DemoOptions, console: Console) -> DemoReport:
    """Run the demo, show it, write its report.

    Whatever happens, Ctrl-C and SIGTERM included, all that was started is taken down, unless it is to be kept.

    A part that fails ends only those that build on it: the report says what held, what did not, and why.

    :raises ConfigurationError: another demo is running in the same folder.
    """
    report = DemoReport(
        intervals=IntervalsReport(days=options.days),
        rebalance_delay_ms=options.rebalance_delay_ms,
        secure=options.secure,
    )
    with _only_demo_in(options.folder), _signals_as_interrupts(), Screen(console) as screen:
        demo = _Demo(options, screen, report)
        try:
            demo.run()
        except BaseException as error:
            report.failure = f"{type(error).__name__}: {error}"
            report.interrupted = not isinstance(error, Exception)
            raise
        finally:
            report.timings = screen.timings()
            report.write(options.report_file)
            demo.end()
        report.timings = screen.timings()
        report.write(options.report_file)
    report.show(console)
    return report


def take_down(folder: Path, console: Console) -> None:
    """End what a kept or a killed demo left running in this folder.

    :raises ConfigurationError: a demo is running there right now.
    """
    if not folder.is_dir():
        console.print(f"There is no demo in {folder}.", highlight=False)
        return
    with _only_demo_in(folder), _signals_as_interrupts():
        _clear(folder.resolve(), lambda line: console.print(line, highlight=False))
    console.print(f"Nothing of the demo in {folder} runs any more.", highlight=False)


class _Demo:
    def __init__(self, options: DemoOptions, screen: Screen, report: DemoReport) -> None:
        self._options = options
        self._folder = options.folder.resolve()
        self._screen = screen
        self._report = report
        self._up: Lab | None = None
        self._running_airflow: AirflowLab | None = None
        self._running_load: Load | None = None
        self._shared_spark: SparkConnect | None = None
        self._summaries: Mapping[str, Mapping[str, Any]] = {}

    @property
    def _lab(self) -> Lab:
        assert self._up is not None
        return self._up

    @property
    def _airflow(self) -> AirflowLab:
        assert self._running_airflow is not None
        return self._running_airflow

    @property
    def _load(self) -> Load:
        assert self._running_load is not None
        return self._running_load

    @property
    def _spark(self) -> SparkConnect:
        """The server that the days share; it is started with them."""
        if self._shared_spark is None:
            self._shared_spark = self._lab.spark_connect()
        return self._shared_spark

    def run(self) -> None:
        """Every part, in order; the topics are compared whatever became of the upgrade."""
        attempt = Parts(self._screen, self._report.parts, self._folder).attempt
        attempt("lab", self._start_lab)
        with Feeder(self._folder / "data" / "flights.jsonl", rate=self._options.flights_per_second) as feeder:
            self._screen.load = lambda: f"{feeder.written:,} flights fed"
            attempt("load", lambda: self._start_load(feeder), needs=["lab"])
            attempt("Airflow", self._start_airflow, needs=["lab"])
            if self._options.secure:
                attempt("rights", self._grant_what_is_missing, needs=["load"])
            attempt("upgrade", self._upgrade, needs=["load", "Airflow", *(["rights"] if self._options.secure else [])])
            attempt("killed worker", self._kill_a_worker, needs=["upgrade"])
            attempt("fencing", self._fence_the_mirror, needs=["upgrade"])
            attempt("offsets", self._change_offsets, needs=["fencing"])
            attempt("end of the load", lambda: self._end_load(feeder), needs=["load"])
        attempt("comparison", lambda: self._compare(feeder.path), needs=["end of the load"])
        if self._options.days:
            attempt("intervals", self._backfill, needs=["Airflow"])
            attempt("comparison of the intervals", self._compare_intervals, needs=["Airflow"])

    def end(self) -> None:
        """Take everything down, or tell where it is."""
        if self._options.keep and not self._report.interrupted:
            self._tell_what_is_up()
            return
        self._screen.step("Taking everything down")
        with _uninterruptible():
            _clear(self._folder, self._screen.now, keep_data=not self._report.ok)
        if not self._report.ok:
            self._screen.say(f"Logs: {self._folder / 'lab'} and {self._folder / 'airflow'}")

    def _start_lab(self) -> None:
        self._screen.step(f"A Kafka broker, PostgreSQL and {WORKERS} Connect workers, exactly-once support disabled")
        _clear(self._folder, self._screen.now)
        for name in ("lab", "airflow", "data", "dags"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        options = LabOptions(
            name=LAB_NAME,
            workers=WORKERS,
            mode=Mode.DISABLED,
            rebalance_delay_ms=self._options.rebalance_delay_ms,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            root=self._folder / "lab",
            postgres=True,
            secure=self._options.secure,
        )
        self._up = Lab.up(options, self._screen.now)
        self._screen.say(f"Kafka at {self._lab.bootstrap_servers}; workers: {', '.join(self._lab.connect_urls)}")

    def _start_load(self, feeder: Feeder) -> None:
        self._screen.step("Live load: flights into a file, a file source, a mirror with three tasks")
        self._running_load = load = Load(self._lab, feeder.path, self._screen.now)
        if self._options.secure:
            self._screen.say(f"{rights.grant(self._lab, Mode.DISABLED)} rights granted; all else is denied")
        load.create()
        seconds = load.wait_running(MIRROR_TASKS_BEFORE, self._options.running_seconds)
        self._screen.say(f"all four tasks run ({seconds:.1f} s); {self._options.flights_per_second} flights a second")

    def _start_airflow(self) -> None:
        self._screen.step("Airflow, with the upgrade DAG")
        lab = self._lab
        dags = self._folder / "dags"
        dags.mkdir(parents=True, exist_ok=True)
        (dags / f"{DAG_ID}.py").write_text(_DAG_FILE, encoding="utf-8")
        connections = {CONNECTION_ID: {"conn_type": "kafka_connect", "extra": {"cluster_file": str(lab.cluster_file)}}}
        if self._options.days:
            text = intervals.dag_file(self._flights_folder)
            (dags / f"{intervals.DAG_ID}.py").write_text(text, encoding="utf-8")
            connections |= intervals.connections(lab, self._spark)
        options = AirflowOptions(
            folder=self._folder / "airflow",
            dags_folder=dags,
            postgres=lab.postgres,
            connections={name: json.dumps(connection) for name, connection in connections.items()},
            environment={"AIRFLOW__EOS__CONNECTION_FILES_FOLDERS": str(lab.cluster_file.parent)},
        )
        self._running_airflow = AirflowLab.start(options, self._screen.now)
        self._report.airflow = {"url": self._airflow.url}
        wait_for_dag(self._airflow, DAG_ID, _DAG_KNOWN_SECONDS, self._screen.now)
        self._screen.say(f"Airflow at {self._airflow.url} (user admin, password in {self._airflow.password_file})")

    def _grant_what_is_missing(self) -> None:
        self._screen.step("The rights that exactly-once asks for: the roll is refused until they are there")
        missing, remedy = rights.missing_for_the_roll(self._lab)
        self._screen.say(f"refused: {missing}", "yellow")
        self._screen.say(f"what to do: {remedy}")
        granted = rights.grant(self._lab, Mode.ENABLED)
        still_missing, _ = rights.missing_for_the_roll(self._lab)
        self._report.refused_for_rights = bool(missing) and not still_missing
        self._screen.say(f"{granted} rights for the mode enabled granted")

    def _upgrade(self) -> None:
        self._screen.step("The upgrade, by the DAG: disabled → preparing → enabled")
        with self._airflow.rest() as rest:
            run = DagRun(rest, DAG_ID, self._screen)
            run.start({"reason": "eos demo"})
            self._report.airflow |= {"dag_id": DAG_ID, "run_id": run.run_id}
            self._screen.say(f"triggered {DAG_ID} as {run.run_id}")
            try:
                run.follow(_DAG_SECONDS)
            finally:  # a run that failed reports what it has done, too
                self._report.approvals = run.approvals
                for mode in (Mode.PREPARING, Mode.ENABLED):
                    with contextlib.suppress(AirflowRestError, UnreachableError):
                        self._report.rolls.append(run.result(f"roll_{mode}"))

    def _kill_a_worker(self) -> None:
        self._screen.step("SIGKILL to the worker that runs the file source")
        lab, load = self._lab, self._load
        number = load.worker_of_file_task()
        url = lab.connect_urls[number]
        started = time.monotonic()
        lab.stop_worker(number, kill=True)
        self._screen.now(f"{url} is dead; its successor starts")
        self._screen.say(f"killed {url} in the midst of its transactions; starting it again, as a supervisor would")
        lab.start_worker(number)
        load.wait_running(MIRROR_TASKS_BEFORE, self._options.running_seconds)
        seconds = round(time.monotonic() - started, 1)
        self._report.killed = {"worker": url, "tasks_running_again_seconds": seconds}
        self._screen.say(f"all tasks run again after {seconds} s")

    def _fence_the_mirror(self) -> None:
        self._screen.step(
            f"The mirror reconfigured from {MIRROR_TASKS_BEFORE} tasks to {MIRROR_TASKS_AFTER}: a fencing round"
        )
        fencing = self._load.reconfigure_mirror(self._options.running_seconds)
        self._report.fencing = fencing
        for name, before in sorted(fencing.before.items()):
            seen, after = fencing.fenced.get(name), fencing.after.get(name)
            steps = [f"epoch {before.producer_epoch}", f"now {after.producer_epoch}" if after else "now gone"]
            if seen is not None:
                steps.insert(1, f"fenced at {seen.producer_epoch} (transaction timeout {seen.timeout_ms} ms)")
            self._screen.say(f"{name}: producer {before.producer_id}, {' → '.join(steps)}")
        self._screen.say(f"task count record: {fencing.count_before.count} → {fencing.count_after.count}")

    def _change_offsets(self) -> None:
        self._screen.step("The mirror's offsets: moved into a topic of its own, removed, put back from a backup")
        changed = change_mirror_offsets(self._lab, self._folder / "data", self._screen.now)
        self._load.wait_running(MIRROR_TASKS_AFTER, self._options.running_seconds)
        self._report.offsets = changed
        self._screen.say(
            f"{changed['moved']} offsets moved to {changed['own_topic']}; {changed['removed']} removed, "
            f"{changed['put_back']} put back; the mirror goes on where it was"
        )

    def _end_load(self, feeder: Feeder) -> None:
        self._screen.step("The end of the file")
        self._report.load_lasted = feeder.is_running
        written = feeder.stop()
        self._report.load = {"lines": written, "rate": self._options.flights_per_second}
        self._screen.say(f"{written:,} flights are in the file; no more are written")
        self._load.wait_file_read(_CATCH_UP_SECONDS)

    def _compare(self, path: Path) -> None:
        self._screen.step("What readers of committed records get")
        load, finished_at_ms = self._load, self._report.enabled_at_ms
        flights = self._drain(FLIGHTS_TOPIC)
        load.wait_mirrored(flights.last_offsets, _CATCH_UP_SECONDS)
        mirrored = self._drain(MIRROR_TOPIC)
        self._report.source = compare(expected_from_file(path), flights, finished_at_ms)
        self._report.mirror = compare(expected_from_topic(flights), mirrored, finished_at_ms)
        for comparison in (self._report.source, self._report.mirror):
            for example in comparison.examples:
                self._screen.say(f"{comparison.topic}: {example}", "yellow")

    def _drain(self, topic: str) -> Drained:
        started = time.monotonic()
        drained = drain(
            self._lab.kafka,
            topic,
            timeout_seconds=_DRAIN_SECONDS,
            progress=lambda passed, end: self._screen.now(f"draining {topic}: {passed:,} of {end:,} offsets"),
        )
        self._screen.say(f"{topic}: {drained.records:,} records drained in {time.monotonic() - started:.1f} s")
        return drained

    @property
    def _flights_folder(self) -> Path:
        return self._folder / "data" / "months"

    def _backfill(self) -> None:
        days = self._options.days
        self._screen.step(
            f"Interval runs: Airflow backfills {days} day{'' if days == 1 else 's'} by Spark, newest first"
        )
        self._screen.load = str
        intervals.prepare(self._lab, self._flights_folder, days)
        self._screen.now("a Spark Connect server starts, which all days share")
        self._spark.start()
        self._screen.say(f"Spark at {self._spark.url}")
        with self._airflow.rest() as rest:
            backfill = intervals.Backfill(self._airflow, rest, self._screen, days, self._spark)
            try:
                backfill.run()
            finally:  # of a backfill that failed, the intervals that were written are compared as well
                self._report.intervals.killed, self._summaries = backfill.killed, backfill.summaries

    def _compare_intervals(self) -> None:
        self._screen.step("What readers of committed records get of the intervals")
        days = self._options.days
        drained = self._drain(intervals.TOPIC)
        report = self._report.intervals
        report.comparison, report.intervals = intervals.compare_days(drained, days, self._summaries)
        for example in report.comparison.examples:
            self._screen.say(f"{report.comparison.topic}: {example}", "yellow")

    def _tell_what_is_up(self) -> None:
        say, folder = self._screen.say, self._options.folder
        self._screen.step("Everything is left up")
        if self._running_airflow is not None:
            say(f"Airflow: {self._airflow.url}, user admin, password in {self._airflow.password_file}")
        if self._up is not None:
            say(f"Kafka: {self._lab.bootstrap_servers}; Connect: {', '.join(self._lab.connect_urls)}")
            say(f"Look at it: eos status --cluster {self._lab.cluster_file}")
        say(f"Take it down: eos demo --down --dir {folder}")


def _clear(folder: Path, say: Callable[[str], None], *, keep_data: bool = False) -> None:
    """End what a demo left in this folder: this one, one that was kept, or one that was killed."""
    say("stopping Airflow, if any runs here")
    AirflowLab.clear(folder / "airflow")
    say("stopping workers and broker, if any run here")
    take_down_lab(folder / "lab" / LAB_NAME, keep_data=keep_data, progress=say)


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
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does, so that what it started is taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _uninterruptible() -> Iterator[None]:
    """Taking down is bounded and may not be broken off half way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
