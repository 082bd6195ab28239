"""A standalone cluster of two hosts, on which Spark does start copies of slow tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyspark
import pytest

from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.job import RESULT_PREFIX, JobSpec
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.lab.drain import compare, drain, expected_from_values
from airflow_eos_provider.lab.java import java_program
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.processes import ProcessIdentity, spawn

pytestmark = pytest.mark.slow

JOBS = Path(__file__).with_name("interval_jobs.py")
DAY = Interval(datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 5, tzinfo=UTC))

#: Spark never copies a task to the host that it runs on; addresses of the loopback interface are hosts enough.
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")

#: As long as the slow task takes its time, unless it is overtaken.
SLOW_SECONDS = 20.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="cluster", workers=1)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, nothing_is_left_running: None) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spark-cluster")
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    started: list[ProcessIdentity] = []

    def start(kind: str, *arguments: str) -> Path:
        log = folder / f"{kind.rsplit('.', 1)[1]}-{len(started)}.log"
        jars = Path(pyspark.__file__).parent / "jars"
        command = [str(java_program()), "-Xmx512m", "-cp", f"{jars}/*", f"org.apache.spark.deploy.{kind}", *arguments]
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
            arguments={"folder": str(tmp_path / "source"), "seconds": SLOW_SECONDS, "barrier": barrier},
            spark={
                "spark.master": master,
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.executor.memory": "512m",
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


def _run(spec: JobSpec, folder: Path) -> dict[str, Any]:
    path = folder / "spec.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(spec.to_dict()))
    command = [sys.executable, "-m", "airflow_eos_provider.interval.job", "--spec", str(path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(RESULT_PREFIX)]
    document: dict[str, Any] = json.loads(line.removeprefix(RESULT_PREFIX))
    return document
