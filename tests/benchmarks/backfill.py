"""Backfills through one shared Spark Connect server: a month of days, and a year of hours.

The server is up, as a shared one is; the session's start counts. The peer is the same write with the same guarantees:
of the days a ``spark-submit`` each, of the hours a run each in the same session. Some are enough to know its rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
from rich.console import Console

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.read.reader import scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from tests.benchmarks.result import Result, own_lab
from tests.connect_server import ConnectServer
from tests.lab.spark_class_data import ensure_spark_archive, spark_jvm_options

DAYS = 31
PEER_DAYS = 3
ROWS = 1_000
SLICES = 4
AT_ONCE = 4
CORES = 2

HOURS = 365 * 24
TOGETHER = 31 * 24
PEER_HOURS = 24
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

_SOURCE = """
def rows(spark, interval, folder):
    return spark.read.parquet(f"{folder}/{interval.start:%Y-%m-%d}")
"""


@contextmanager
def _served(console: Console) -> Iterator[tuple[Lab, ConnectServer, Path]]:
    """A broker, a Spark Connect server and a folder for the source."""
    ensure_spark_archive(console.print)
    with own_lab("backfill") as lab:
        folder = lab.options.root
        server = ConnectServer(folder, _properties(folder))
        try:
            server.start()
            yield lab, server, folder
        finally:
            server.stop()


def run(console: Console) -> list[Result]:
    """Days a minute, ours and the peer's."""
    with _served(console) as (lab, server, folder):
        days = _intervals(DAY, DAYS)
        _make_source(server, folder, days)
        ours = _through_one_session(lab, server, folder, days)
        console.print(f"  one session: {ours:.1f} days a minute, load {os.getloadavg()[0]:.1f}", style="dim")
        server.stop()
        theirs = _submit_each(lab, folder, days[:PEER_DAYS])
        console.print(f"  spark-submit: {theirs:.1f} days a minute, load {os.getloadavg()[0]:.1f}", style="dim")
    what = (
        f"{DAYS} days of {ROWS:,} rows exactly once through a Spark Connect session, {AT_ONCE} at once, against a "
        f"spark-submit a day ({PEER_DAYS} days, one after another), on {CORES} cores"
    )
    return [Result("backfill_days_a_minute", ours, theirs, "higher", "days/min", what)]


def run_hours(console: Console) -> list[Result]:
    """Hours a minute, those of months together and one by one."""
    with _served(console) as (lab, server, folder):
        hours = _intervals(HOUR, HOURS)
        _make_hours(server, folder)
        ours = _hours_a_minute(lab, server, folder, hours, "together", TOGETHER)
        console.print(f"  together: {ours:,.0f} hours a minute, load {os.getloadavg()[0]:.1f}", style="dim")
        theirs = _hours_a_minute(lab, server, folder, hours[:PEER_HOURS], "each", 1)
        console.print(f"  a run each: {theirs:,.0f} hours a minute, load {os.getloadavg()[0]:.1f}", style="dim")
    what = (
        f"{HOURS:,} hours of {ROWS:,} rows exactly once through a Spark Connect session, {TOGETHER} together, in "
        f"{60 * HOURS / ours:.0f} s, against a run an hour ({PEER_HOURS} hours, {AT_ONCE} at once), on {CORES} cores"
    )
    return [Result("backfill_hours_a_minute", ours, theirs, "higher", "hours/min", what)]


def _intervals(width: timedelta, count: int) -> list[Interval]:
    first = datetime(2013, 1, 1, tzinfo=UTC)
    return [Interval(first + number * width, first + (number + 1) * width) for number in range(count)]


def _properties(folder: Path) -> dict[str, str]:
    return {
        "spark.master": f"local[{CORES},2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": spark_jvm_options(),
    }


def _make_source(server: ConnectServer, folder: Path, days: Iterable[Interval]) -> None:
    spark = server.session()
    value = "lpad(cast(id as string), 200, 'x') as value"
    for day in days:
        made = spark.range(0, ROWS, 1, 1).selectExpr("cast(id as string) as key", value)
        made.write.parquet(str(folder / "source" / f"{day.start:%Y-%m-%d}"))
    spark.stop()


def _make_hours(server: ConnectServer, folder: Path) -> None:
    """A year in one table, with a column for the hour; so many rows each."""
    spark = server.session()
    made = spark.range(0, HOURS * ROWS, 1, 2 * CORES).selectExpr(
        "cast(id as string) as key", "lpad(cast(id as string), 200, 'x') as value", f"id div {ROWS} as hour"
    )
    made.write.parquet(str(folder / "hours"))
    spark.stop()


def _hours_a_minute(
    lab: Lab, server: ConnectServer, folder: Path, hours: list[Interval], name: str, together: int
) -> float:
    from airflow_eos_provider.interval.spark import require_all_complete, write_intervals
    from airflow_eos_provider.interval.verify import ledger

    pipeline = _pipeline(lab, name)
    began = time.monotonic()
    spark = server.session()
    first = hours[0].start

    def rows(interval: Interval) -> Any:
        start, end = ((moment - first) // HOUR for moment in (interval.start, interval.end))
        return spark.read.parquet(f"{folder}/hours").where(f"{start} <= hour and hour < {end}")

    how = {"slices": SLICES, "at_once": 1 if together > 1 else AT_ONCE, "together": together, "selects_by_bounds": True}
    require_all_complete(write_intervals(rows, pipeline, hours, spark=spark, **how))
    spark.stop()
    seconds = time.monotonic() - began
    state = ledger(pipeline, wait=True)
    parts = state.wholes(hours)
    assert all(hour in parts or state.completed(Run(name, hour)) for hour in hours), "each hour is complete"
    _require_all(pipeline, len(hours))
    return 60 * len(hours) / seconds


def _pipeline(lab: Lab, name: str) -> Pipeline:
    lab.create_topic(name, 4)
    return Pipeline(name=name, group_id="benchmark", kafka=KafkaSettings.of(lab.bootstrap_servers), topic=name)


def _through_one_session(lab: Lab, server: ConnectServer, folder: Path, days: list[Interval]) -> float:
    from airflow_eos_provider.interval.spark import require_all_complete, write_intervals

    pipeline = _pipeline(lab, "shared")
    began = time.monotonic()
    spark = server.session()

    def rows(interval: Interval) -> Any:
        return spark.read.parquet(f"{folder}/source/{interval.start:%Y-%m-%d}")

    require_all_complete(write_intervals(rows, pipeline, days, spark=spark, slices=SLICES, at_once=AT_ONCE))
    spark.stop()
    seconds = time.monotonic() - began
    _require_all(pipeline, len(days))
    return 60 * len(days) / seconds


def _submit_each(lab: Lab, folder: Path, days: list[Interval]) -> float:
    from airflow_eos_provider.interval.spark import job
    from airflow_eos_provider.interval.spark.job import JobSpec

    pipeline = _pipeline(lab, "submitted")
    source = folder / "source_rows.py"
    source.write_text(_SOURCE)
    home = Path(pyspark.__file__).parent
    settings = folder / "submit.conf"
    settings.write_text("".join(f"{name} {value}\n" for name, value in _properties(folder).items()))
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    began = time.monotonic()
    for day in days:
        spec = JobSpec(pipeline, day, f"{source}:rows", {"folder": str(folder / "source")}, slices=SLICES)
        path = folder / "spec.json"
        path.write_text(json.dumps(spec.to_dict()))
        command = [str(home / "bin" / "spark-submit"), "--properties-file", str(settings), str(job.__file__)]
        subprocess.run([*command, "--spec", str(path)], env=environment, check=True, capture_output=True, timeout=300)
    seconds = time.monotonic() - began
    _require_all(pipeline, len(days))
    return 60 * len(days) / seconds


def _require_all(pipeline: Pipeline, intervals: int) -> None:
    """A way that loses rows would be fast."""
    seen = 0

    def count(records: Any) -> None:
        nonlocal seen
        seen += len(records)

    scan_to_end(pipeline.kafka, str(pipeline.topic), count, timeout_seconds=120)
    assert seen == intervals * ROWS, f"{pipeline.topic} has {seen} records"
