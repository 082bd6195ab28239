"""Python workers from this package's daemon, on a Spark Connect server: one daemon a session, and none for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.interval.spark.executors.worker_daemon import IDLE_VARIABLE
from tests.connect_server import ConnectServer, daemon_of
from tests.waiting import until


@pytest.fixture
def server(
    tmp_path: Path,
    spark_properties: dict[str, str],
    nothing_is_left_running: None,
) -> Iterator[ConnectServer]:
    """A server each of whose workers has one task; a daemon ends after a second without a worker."""
    properties = {**spark_properties, DAEMON_PROPERTY: DAEMON_MODULE, "spark.python.worker.reuse": "false"}
    started = ConnectServer(tmp_path, properties, {IDLE_VARIABLE: "1"})
    try:
        started.start()
        yield started
    finally:
        started.stop()


def is_alive(pid: int) -> bool:
    try:
        return DAEMON_MODULE in psutil.Process(pid).cmdline()
    except psutil.Error:  # it is gone, or has ended and not been waited for
        return False


def test_the_daemon_of_a_session_ends_without_workers_and_is_started_again(server: ConnectServer) -> None:
    first, second = server.session(), server.session()
    try:
        daemon, pyspark = daemon_of(first)
        other, _ = daemon_of(second)
        assert other != daemon
        assert "pyspark.zip" not in pyspark
        until(lambda: not is_alive(daemon) and not is_alive(other), "the ends of the daemons", seconds=30)
        again, _ = daemon_of(first)
        assert again not in (daemon, other)
    finally:
        first.stop()
        second.stop()


def test_a_daemon_stays_while_it_has_a_worker(server: ConnectServer, tmp_path: Path) -> None:
    """Meanwhile that of another session, which has none, ends."""
    session, other = server.session(), server.session()
    begun, gate = tmp_path / "begun", tmp_path / "gate"

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        import pyarrow

        list(batches)
        begun.touch()
        while not gate.exists():
            time.sleep(0.05)
        yield pyarrow.RecordBatch.from_pylist([{"parent": os.getppid()}])

    frame = session.range(0, 1, 1, 1).mapInArrow(look, "parent long")
    with ThreadPoolExecutor(1) as threads:
        rows = threads.submit(frame.collect)
        try:
            until(begun.exists, "the worker", seconds=30)
            idle, _ = daemon_of(other)
            until(lambda: not is_alive(idle), "the end of the other daemon", seconds=30)
        finally:
            gate.touch()
        (row,) = rows.result(timeout=240)
    assert row.parent not in (1, idle)
    session.stop()
    other.stop()


@pytest.mark.parametrize(
    ("arguments", "expected", "python"),
    [
        (["--master", "local[1]"], {DAEMON_PROPERTY: DAEMON_MODULE}, sys.executable),
        (["--master", "spark://127.0.0.1:1"], {}, None),
    ],
    ids=["local", "a cluster"],
)
def test_what_spark_submit_was_given_is_known(
    tmp_path: Path,
    spark_properties: dict[str, str],
    arguments: list[str],
    expected: dict[str, str],
    python: str | None,
) -> None:
    """A job asks before it has a session; nothing listens at the cluster's address.

    A cluster's executors do not get the driver's Python, which need not be there.
    """
    program = tmp_path / "job.py"
    program.write_text(
        "import os\n"
        "from airflow_eos_provider.interval.spark.executors import python as chosen\n"
        "chosen.choose_executor_python({}, chosen.master_of({}))\n"
        "print('python', os.environ.get('PYSPARK_PYTHON'))\n"
        "print('property', chosen.daemon_property({}))\n"
    )
    home = Path(pyspark.__file__).parent
    options = ["--driver-java-options", spark_properties["spark.driver.extraJavaOptions"]]
    mine = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    driver = {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [str(home / "bin" / "spark-submit"), *arguments, *options, str(program)],
        env={**mine, **driver},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert {f"property {expected}", f"python {python}"} <= set(done.stdout.splitlines())
