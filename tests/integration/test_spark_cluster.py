"""A standalone cluster of two hosts, on which Spark does start copies of slow tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pytest

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.lab.lab import Lab
from tests.integration.interval_target import DAY, JOBS, Target
from tests.packed_executors import ask_doctor, wrap
from tests.spark_cluster import WORKER_HOSTS, loopback_properties, standalone_cluster

#: As long as the slow task takes, under a barrier and without one, where its copy ends long before it.
SLOW_SECONDS = {True: 8.0, False: 60.0}

SPECULATION = {
    # No task begins before both executors are there: the copy is to begin while the first one sleeps.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="cluster", workers=0)


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-cluster")


@pytest.fixture(scope="module")
def master(cluster_folder: Path, nothing_is_left_running: None) -> Iterator[str]:
    with standalone_cluster(cluster_folder) as url:
        yield url


@pytest.mark.parametrize(
    "barrier",
    [pytest.param(True, id="under a barrier", marks=pytest.mark.by_name), pytest.param(False, id="without a barrier")],
)
def test_a_slow_task_that_spark_may_copy_writes_once(lab: Lab, master: str, tmp_path: Path, barrier: bool) -> None:
    """Under a barrier Spark makes no copy. Without one it does, and each record is there once all the same."""
    target = Target.make(lab, "cluster-tests")
    (tmp_path / "marks").mkdir()
    (tmp_path / "source").mkdir()
    lines = []
    for file in range(4):
        content = [f'{{"line":{line}}}'.encode() for line in range(100 * file, 100 * file + 100)]
        (tmp_path / "source" / f"2013-{file}.json").write_bytes(b"\n".join(content) + b"\n")
        lines += content
    done = _run(
        JobSpec(
            target.pipeline,
            DAY,
            f"{JOBS}:slow_at_first",
            arguments={"folder": str(tmp_path / "source"), "seconds": SLOW_SECONDS[barrier], "barrier": barrier},
            spark={**loopback_properties(master), **SPECULATION},
        ),
        tmp_path,
    )
    assert done["records"] == 400
    readers = list((tmp_path / "marks").iterdir())
    assert len(readers) == (1 if barrier else 2)
    target.require_exactly_once(lines)


def test_a_retry_has_one_evaluation_of_its_input_where_spark_copies_tasks(
    lab: Lab, master: str, tmp_path: Path
) -> None:
    """Two copies of a task end at one moment with other keys; one of them counts, for each reader."""
    target = Target.make(lab, "cluster-tests")
    marks = tmp_path / "marks"
    marks.mkdir()
    spark = {**loopback_properties(master), **SPECULATION}
    arguments = {"folder": str(marks), "pipeline": target.pipeline.to_dict()}
    document, log = _outcome(
        JobSpec(target.pipeline, DAY, f"{JOBS}:racing", arguments=arguments, spark=spark), tmp_path
    )

    assert len(list(marks.glob("copy-*"))) == 2, log[-4000:]
    places = json.loads((marks / "places.json").read_text())
    assert places
    assert set(places) == {1}, "each part of the frozen input is in one place"
    if document.get("records") is None:  # the copy with the other keys came first
        assert document["type"] == "InputChangedError", document
    else:
        lines = [f"line {number}".encode() for number in range(300)]
        target.require_exactly_once(lines)


_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"


@pytest.mark.parametrize(("slices_by", "changes"), [("key", True), ("partitions", True), ("partitions", False)])
def test_an_executor_lost_after_a_commit(lab: Lab, master: str, tmp_path: Path, slices_by: str, changes: bool) -> None:
    """Its part of the shuffle is evaluated again, and the task that had committed a slice goes on with those rows.

    With a key, Spark's own settings are its defaults: its checksums see the other rows and have the task begin again in
    full, which skips the slice that is committed.
    """
    target = Target.make(lab, "cluster-tests")
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "version").write_text("first")
    spark = {
        **loopback_properties(master),
        # A part of the input on each executor.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    if slices_by == "partitions":  # Spark 4.2 would abort the job before this package's own check
        ways = ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch")
        spark |= {f"{_CHECKSUM}.{way}": "false" for way in ways}
    arguments = {"folder": str(marks), "partitions": 4 if slices_by == "partitions" else 0}
    spec = JobSpec(
        target.pipeline,
        DAY,
        f"{JOBS}:moving",
        arguments=arguments,
        spark=spark,
        slices_by=slices_by,
        slices=4,
        tasks=1,
    )
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
    comparison = target.compare(lines)
    if changes:
        assert document.get("type") == "InputChangedError", document["message"]
        assert not comparison.exactly_once, comparison
        assert completion(target.pipeline, Run(target.pipeline.name, DAY)) is None
    else:
        assert document.get("records") == 300, document
        assert comparison.exactly_once, comparison
        assert "comparing the input with 4 committed slices" in log


def _wait_for_number(path: Path, running: Future[Any]) -> int:
    """The number in a file that a running job writes."""
    deadline = time.monotonic() + 600
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


@pytest.mark.by_name
def test_the_doctor_says_of_each_executor_what_it_lacks(
    lab: Lab, master: str, cluster_folder: Path, tmp_path: Path
) -> None:
    """One host has what is needed, the other a bare Python; then both have it."""
    whole, bare = WORKER_HOSTS
    venv.create(tmp_path / "bare", symlinks=True)
    wrap(Path(sys.executable), cluster_folder / whole / "python")
    wrap(tmp_path / "bare" / "bin" / "python", cluster_folder / bare / "python")
    properties = loopback_properties(master)
    code, found = ask_doctor({**properties, "spark.pyspark.python": "../../python"}, 2, lab.bootstrap_servers)
    hosts = {look["place"]: look["host"] for look in found["executors"]}
    failed = [check for check in found["checks"] if check["verdict"] != "pass"]
    assert (code, found["verdict"], sorted(hosts.values())) == (1, "fail", [whole, bare])
    assert {hosts[check["subject"]] for check in failed} == {bare}, failed
    assert {"numpy", "pyarrow"} <= {check["kind"] for check in failed} <= {"brokers", "numpy", "pyarrow"}

    code, found = ask_doctor({**properties, "spark.pyspark.python": sys.executable}, 2, lab.bootstrap_servers)
    assert (code, found["verdict"]) == (0, "pass"), found["checks"]
    assert sorted(look["host"] for look in found["executors"]) == [whole, bare]
    assert [look["brokers"] for look in found["executors"]] == ["1", "1"]


def test_executors_need_numpy_and_pyarrow_alone(lab: Lab, master: str, tmp_path: Path) -> None:
    """A write on a bare Python is refused in words; once these two are there, it succeeds.

    With this package's daemon it does not: Spark starts that before it fetches what the driver ships.
    """
    venv.create(tmp_path / "bare", symlinks=True)
    target = Target.make(lab, "cluster-tests", 1)
    (tmp_path / "marks").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "2013-0.json").write_text('{"line":1}\n')
    arguments = {"folder": str(tmp_path / "source"), "seconds": 0.0, "barrier": False}
    spark = {**loopback_properties(master), "spark.pyspark.python": str(tmp_path / "bare" / "bin" / "python")}
    spec = JobSpec(target.pipeline, DAY, f"{JOBS}:slow_at_first", arguments=arguments, spark=spark)
    document, _ = _outcome(spec, tmp_path)

    assert (document["type"], document["exit_code"]) == ("ConfigurationError", 2), document
    assert "An executor's Python lacks the module 'pyarrow'." in document["message"]
    assert "eos intervals doctor" in document["message"]
    assert "Traceback" not in document["message"]

    (packages,) = (tmp_path / "bare" / "lib").glob("python3*/site-packages")
    for name in ("numpy", "numpy.libs", "pyarrow"):
        (packages / name).symlink_to(Path(pyarrow.__file__).parents[1] / name)
    with_daemon = replace(spec, spark={**spark, DAEMON_PROPERTY: DAEMON_MODULE})
    document, _ = _outcome(with_daemon, tmp_path)

    assert (document["type"], document["exit_code"]) == ("ConfigurationError", 2), document
    assert "An executor's Python lacks the module 'airflow_eos_provider'." in document["message"]
    assert "leave spark.python.daemon.module out" in document["message"]
    assert target.values() == []
    assert _run(spec, tmp_path)["records"] == 1
    target.require_exactly_once([b'{"line":1}'])
