"""A standalone cluster of two hosts, on which Spark does start copies of slow tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from airflow_eos_provider.demo.oracle import compare, drain, expected_from_values
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.lab.java import java_program
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.spark_class_data import ensure_spark_archive, spark_jvm_options
from airflow_eos_provider.processes import ProcessIdentity, spawn

pytestmark = pytest.mark.slow

JOBS = Path(__file__).with_name("interval_jobs.py")

DAY = Interval(datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 5, tzinfo=UTC))

#: Spark never copies a task to the host that it runs on; addresses of the loopback interface are hosts enough.
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")

#: As long as the slow task takes, by whether there is a barrier: without one it is overtaken, long before its end.
SLOW_SECONDS = {True: 8.0, False: 60.0}


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="cluster", workers=0)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, nothing_is_left_running: None) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spark-cluster")
    ensure_spark_archive(print)
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    started: list[ProcessIdentity] = []

    def start(kind: str, *arguments: str) -> Path:
        log = folder / f"{kind.rsplit('.', 1)[1]}-{len(started)}.log"
        jars = Path(pyspark.__file__).parent / "jars"
        command = [
            str(java_program()),
            *spark_jvm_options().split(),
            "-Xmx512m",
            "-cp",
            f"{jars}/*",
            f"org.apache.spark.deploy.{kind}",
            *arguments,
        ]
        environment = {"SPARK_LOCAL_DIRS": str(folder), "SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": "2.13"}
        started.append(spawn(command, log=log, env=environment))
        return log

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for host in WORKER_HOSTS:
            log = start(
                "worker.Worker", "--host", host, "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder), url
            )
            _wait_until_registered(log)
        yield url
    finally:
        for process in reversed(started):
            process.stop()


def jvms() -> dict[str, str]:
    return {f"spark.{who}.extraJavaOptions": spark_jvm_options() for who in ("driver", "executor")}


def _wait_until_registered(log: Path) -> None:
    deadline = time.monotonic() + 120
    while "Successfully registered" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)


@pytest.mark.parametrize("barrier", [True, False])
def test_speculation(lab: Lab, master: str, tmp_path: Path, barrier: bool) -> None:
    """With the barrier there is no copy; without it there is one, and the records are there once all the same."""
    topic = f"daily-{uuid.uuid4().hex[:8]}"
    lab.create_topic(topic, 2)
    (tmp_path / "marks").mkdir()
    (tmp_path / "source").mkdir()
    lines = []
    for file in range(4):
        content = [f'{{"line":{line}}}'.encode() for line in range(100 * file, 100 * file + 100)]
        (tmp_path / "source" / f"2013-{file}.json").write_bytes(b"\n".join(content) + b"\n")
        lines += content
    settings = KafkaSettings.of(lab.bootstrap_servers)
    done = _run(
        JobSpec(
            Pipeline(name=topic, group_id="cluster-tests", kafka=settings, topic=topic, transaction_timeout_ms=30_000),
            DAY,
            f"{JOBS}:slow_at_first",
            arguments={"folder": str(tmp_path / "source"), "seconds": SLOW_SECONDS[barrier], "barrier": barrier},
            spark={
                "spark.master": master,
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                **jvms(),
                "spark.executor.memory": "512m",
                # No task begins before both executors are there: the copy is to begin while the first one sleeps.
                "spark.cores.max": "2",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
                "spark.speculation": "true",
                "spark.speculation.interval": "100ms",
                "spark.speculation.multiplier": "1.1",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "100ms",
            },
        ),
        tmp_path,
    )
    assert done["records"] == 400
    readers = list((tmp_path / "marks").iterdir())
    assert len(readers) == (1 if barrier else 2), "one attempt under a barrier, a copy beside it without"
    assert compare(expected_from_values(lines, "the source"), drain(settings, topic)).exactly_once


@pytest.mark.parametrize("changes", [True, False])
def test_an_executor_lost_after_a_commit(lab: Lab, master: str, tmp_path: Path, changes: bool) -> None:
    """Its part of the shuffle is evaluated again, and the task that had committed a slice goes on with those rows.

    Spark's own settings are its defaults: its checksums see the other rows and have the task begin again in full, which
    skips the slice that is committed.
    """
    topic = f"daily-{uuid.uuid4().hex[:8]}"
    lab.create_topic(topic, 2)
    settings = KafkaSettings.of(lab.bootstrap_servers)
    pipeline = Pipeline(
        name=topic, group_id="cluster-tests", kafka=settings, topic=topic, transaction_timeout_ms=30_000
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "version").write_text("first")
    spark = {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **jvms(),
        "spark.executor.memory": "512m",
        # A part of the input on each executor.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    spec = JobSpec(pipeline, DAY, f"{JOBS}:moving", arguments={"folder": str(marks)}, spark=spark, slices=4, tasks=1)
    with ThreadPoolExecutor(1) as driver:
        running = driver.submit(_outcome, spec, tmp_path)
        executor = psutil.Process(_wait_for_number(marks / "committed", running))
        assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
        assert {path.name for path in marks.glob("evaluated-*")} == {"evaluated-0-first", "evaluated-1-first"}
        if changes:
            (marks / "version").write_text("second")
        executor.kill()
        document, log = running.result(timeout=200)

    assert (marks / "again").exists()
    lines = [f"line {number}".encode() for number in range(300)]
    comparison = compare(expected_from_values(lines, "the source"), drain(settings, topic))
    if changes:
        assert document.get("type") == "InputChangedError", (document, comparison)
        assert not comparison.exactly_once, comparison
        assert completion(pipeline, Run(topic, DAY)) is None
    else:
        assert document.get("records") == 300, document
        assert comparison.exactly_once, comparison
        assert "comparing the input with 4 committed slices" in log


def _wait_for_number(path: Path, running: Future[Any]) -> int:
    """The number in a file that a running job writes."""
    deadline = time.monotonic() + 180
    while not path.exists():
        assert not running.done(), running.result()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


def _run(spec: JobSpec, folder: Path) -> dict[str, Any]:
    document, log = _outcome(spec, folder)
    assert "records" in document, log[-4000:]
    return document


def _outcome(spec: JobSpec, folder: Path) -> tuple[dict[str, Any], str]:
    """What a job tells of itself, and its log."""
    path = folder / "spec.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(spec.to_dict()))
    command = [sys.executable, "-m", "airflow_eos_provider.interval.spark.job", "--spec", str(path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("EOS-INTERVAL-")]
    assert len(lines) == 1, done.stderr[-4000:]
    (folder / "job.log").write_text(done.stderr)
    document: dict[str, Any] = json.loads(lines[0].split(" ", 1)[1])
    return document, done.stderr
