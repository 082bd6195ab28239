"""Python workers from this package's daemon, on a Spark Connect server: one daemon a session, and none for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_eos_provider.interval.python_needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.interval.spark.worker_daemon import IDLE_VARIABLE
from tests.connect_server import ConnectServer
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.spark]


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


def told(session: Any) -> tuple[int, str]:
    """Of the Python process of a task: its parent, and where its pyspark is from."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pylist([{"parent": os.getppid(), "pyspark": pyspark.__file__}])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "parent long, pyspark string").collect()
    return row.parent, row.pyspark


def is_alive(pid: int) -> bool:
    try:
        return DAEMON_MODULE in psutil.Process(pid).cmdline()
    except psutil.Error:  # it is gone, or has ended and not been waited for
        return False


def test_the_daemon_of_a_session_ends_without_workers_and_is_started_again(server: ConnectServer) -> None:
    first, second = server.session(), server.session()
    try:
        daemon, pyspark = told(first)
        other, _ = told(second)
        assert other != daemon
        assert "pyspark.zip" not in pyspark
        until(lambda: not is_alive(daemon) and not is_alive(other), "the ends of the daemons", seconds=30)
        again, _ = told(first)
        assert again not in (daemon, other)
    finally:
        first.stop()
        second.stop()


def test_a_daemon_stays_while_it_has_a_worker(server: ConnectServer) -> None:
    session = server.session()

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        import pyarrow

        list(batches)
        time.sleep(3)  # three times as long as a daemon stays without a worker: what is to be seen is that nothing is
        yield pyarrow.RecordBatch.from_pylist([{"parent": os.getppid()}])

    try:
        (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "parent long").collect()
        assert row.parent > 1
    finally:
        session.stop()
