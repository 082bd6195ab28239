"""Inspects the Python of this driver, and of every executor by small Spark jobs.

The inspection (:mod:`~airflow_eos_provider.interval.spark.executors.environment`) is shipped by value as a function of
a column, and returns text. It needs only Python's standard library, and runs on a cluster and behind Spark
Connect. An executor is identified by the start arguments of its JVM, so each is reported once, even with many tasks.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.spark.executors import environment
from airflow_eos_provider.interval.spark.executors.needs import (
    NEEDS,
    Diagnosis,
    PythonLook,
    check,
    coverage_check,
    driver_checks,
    executor_checks,
)
from airflow_eos_provider.interval.spark.executors.python import choose_executor_python
from airflow_eos_provider.interval.spark.shipping import ship
from airflow_eos_provider.interval.spark.spark_errors import refusal_within
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: A task of a look lasts so long, seconds, so that no executor takes those of its neighbours.
_HOLD_SECONDS = 0.2

#: Further executors come within this time after the last one, seconds; unless it is known how many there will be.
_SETTLE_SECONDS = 3.0

#: Most tasks in one round.
_MOST_TASKS = 2000

#: A master or a server that is there accepts a connection within this time, seconds.
_CONNECT_SECONDS = 10.0

#: Spark's JVM starts, a cluster grants executors, and a driver in it stops within this time beyond the look, seconds.
_SPARK_SECONDS = 60.0

#: Beneath what is given. An executor that has failed a task does not get it again: another one answers it.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.excludeOnFailure.enabled": "true",
    "spark.speculation": "false",
}


def diagnose(
    *,
    kafka: KafkaSettings | None = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    seconds: float = 60.0,
    executors: int | None = None,
    report: Report = silent,
) -> Diagnosis:
    """Look at the driver and, where a master or a remote server is named, at every executor."""
    client = dict(kafka.properties) if kafka else None
    looked = PythonLook(**environment.look([need.module for need in NEEDS if need.driver], client))
    java = None if remote else environment.java()
    driver = replace(looked, place="driver", host=socket.gethostname(), java=java)
    checks, looks = driver_checks(driver), list[PythonLook]()
    target = remote or master
    if target is None:
        return Diagnosis(driver, (), checks)
    if "pyspark" not in driver.packages:
        raise ConfigurationError(
            f"This Python ({driver.interpreter}) has no pyspark: {driver.broken.get('pyspark')}.",
            remedy="pip install 'airflow-eos-provider[spark]', or leave --master and --remote out.",
        )
    given = dict(conf or {})
    choose_executor_python(given, target)
    instances = given.get("spark.executor.instances", "")
    wanted = executors or (int(instances) if instances.isdecimal() else None)
    cluster = _Cluster(target, remote is not None, given, client, wanted, report)
    try:
        _require_listening(target)
        cluster.look(seconds)
        looks = [cluster.seen[place] for place in sorted(cluster.seen, key=lambda place: (len(place), place))]
        checks += [each for look in looks for each in executor_checks(look, driver)]
        checks.append(coverage_check(set(cluster.seen), cluster.registered, wanted))
    except UnreachableError as error:
        checks.append(check("cluster", "executors", Verdict.INCONCLUSIVE, error.found, error.remedy or ""))
    except ConfigurationError as error:
        checks.append(check("executors", "Python", Verdict.FAIL, error.found, error.remedy or ""))
    return Diagnosis(driver, looks, checks, _without_token(target))


def _shipped_look(client: Mapping[str, str] | None) -> Callable[[int], str]:
    """A look that Spark ships with all of its code."""
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    register(environment)
    modules = [need.module for need in NEEDS if need.executor]
    look, properties, stay, text = environment.look, dict(client) if client else None, _HOLD_SECONDS, json.dumps
    return lambda number: text(look(modules, properties, stay))


@dataclass
class _Cluster:
    """The executors of one Spark application."""

    target: str
    is_remote: bool
    conf: Mapping[str, str]
    client: dict[str, str] | None
    wanted: int | None
    report: Report
    seen: dict[str, PythonLook] = field(default_factory=dict)
    registered: set[str] | None = None  # None where the driver cannot be asked
    _spark: Any = None
    _error: BaseException | None = None

    @property
    def name(self) -> str:
        return _without_token(self.target)

    def look(self, seconds: float) -> None:
        """Look at executors until every one that is there or is waited for has been seen, or the time is over.

        Spark itself waits for executors without end, so it does that in a thread which is left behind then.
        """
        thread = threading.Thread(target=self._run, args=(seconds,), name="eos-doctor", daemon=True)
        thread.start()
        thread.join(seconds + _SPARK_SECONDS)
        self._stop()
        if self._error is not None and not self.seen:
            raise self._explained(self._error)
        if not self.seen:
            raise UnreachableError(
                f"No executor of {self.name} has run a task within {seconds:.0f} s.",
                remedy="Check that the cluster has cores and memory to spare, that its machines reach this one "
                "(spark.driver.host, spark.driver.port), and what its own log says; or raise --timeout.",
            )

    def _run(self, seconds: float) -> None:
        try:
            self.report(f"Spark starts on {self.name}")
            self._spark = self._session()
            began = last = time.monotonic()
            while True:
                before = len(self.seen)
                self._round()
                now = time.monotonic()
                last = now if len(self.seen) > before else last
                if now > began + seconds or self._is_complete(now - last):
                    return
        except BaseException as error:  # reported by whoever waits for this thread
            self._error = error

    def _is_complete(self, quiet: float) -> bool:
        if (self.registered or set()) - set(self.seen):
            return False
        if self.wanted is not None:
            return len(self.seen) >= self.wanted
        return quiet > _SETTLE_SECONDS or "executor driver" in self.seen

    def _session(self) -> Any:
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder.appName("eos intervals doctor")
        builder = builder.remote(self.target) if self.is_remote else builder.master(self.target)
        defaults = {} if self.is_remote else dict(_DEFAULTS)
        for name, value in {**defaults, **self.conf}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        if not self.is_remote:
            spark.sparkContext.setLogLevel("OFF")
        ship(spark)
        return spark

    def _round(self) -> None:
        """One job whose tasks look; Spark offers them to all free executors in turn."""
        from pyspark.sql import functions as F

        tasks = self._tasks()
        function: Any = F.udf(_shipped_look(self.client), "string", useArrow=False)
        rows = self._spark.range(0, tasks, 1, tasks).select(function("id").alias("look")).collect()
        for row in rows:
            found = PythonLook(**json.loads(row.look))
            if found.place not in self.seen:
                self.seen[found.place] = found
                self.report(f"{found.place} on {found.host}: Python {found.python}")
        if not self.is_remote:
            self.registered = self._executors()

    def _tasks(self) -> int:
        """Twice as many tasks as run at once."""
        if self.is_remote:
            return max(16, 4 * len(self.seen))
        slots = int(self._spark.sparkContext.defaultParallelism)
        return min(_MOST_TASKS, 2 * max(slots, len(self._executors() or ())))

    def _executors(self) -> set[str] | None:
        """Places of those that the driver knows; the driver itself where it is the only one."""
        try:
            inside = self._spark.sparkContext._jsc.sc()
            if inside.isLocal():
                return {"executor driver"}
            numbers = inside.getExecutorIds()
            return {f"executor {numbers.apply(place)}" for place in range(numbers.size())}
        except Exception:  # Spark's inside is another one: what tasks have met is all that is known
            return None

    def _stop(self) -> None:
        def stop() -> None:
            try:
                self._spark.stop()
            except Exception as error:
                self.report(f"Spark did not stop cleanly: {error}")

        if self._spark is not None:
            stopping = threading.Thread(target=stop, daemon=True)
            stopping.start()
            stopping.join(_SPARK_SECONDS)

    def _explained(self, error: BaseException) -> BaseException:
        text = str(error)
        if refusal := refusal_within(text):
            return refusal
        if isinstance(error, EosError):
            return error
        first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)[:500]
        return UnreachableError(
            f"Spark on {self.name} ended before an executor had answered: {first}",
            remedy="The lines of Spark above say more. Check the address, and the properties given with --conf.",
        )


def _require_listening(target: str) -> None:
    """Check that a server listens where the address names a port: Spark itself takes a minute to say so."""
    if not target.startswith(("spark://", "sc://")):
        return
    refusals = []
    for part in target.split("://", 1)[1].split(";")[0].rstrip("/").split(","):
        address = urlsplit(f"//{part}")
        try:
            with socket.create_connection((address.hostname or "", address.port or 15002), _CONNECT_SECONDS):
                return
        except (OSError, ValueError) as error:
            refusals.append(f"{part}: {error}")
    raise UnreachableError(
        f"Nobody answers at {_without_token(target)}: {'; '.join(refusals)}.",
        remedy="Check the address, and that it is up.",
    )


def _without_token(target: str) -> str:
    """The address as it may be shown: a token may be among the parameters of Spark Connect's."""
    return target.split(";")[0].rstrip("/")
