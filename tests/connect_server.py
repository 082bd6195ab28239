"""A Spark Connect server from pyspark's own jars, and sessions of it beside classic ones in one process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.local_processes import ProcessIdentity, spawn
from tests.families import family_of

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: How long a server may take to start on a busy machine, seconds.
_START_SECONDS = 180.0


class ConnectServer:
    """One server, on a port of the loopback interface that it keeps over restarts."""

    def __init__(
        self, folder: Path, properties: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._properties = dict(properties)
        self._environment = dict(environment or {})
        self._process: ProcessIdentity | None = None
        self._sessions: list[Any] = []
        self._starts = 0

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it takes calls."""
        self._starts += 1
        home = Path(pyspark.__file__).parent
        properties = {
            **self._properties,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        # A file, since a property's value may have spaces, and what is tested must not be a matter of a shell.
        settings = self._folder / f"connect-{self._starts}.conf"
        settings.write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
        command = [str(home / "bin" / "spark-submit"), "--properties-file", str(settings), "--class", _CLASS]
        log = self._folder / f"connect-{self._starts}.log"
        environment = {
            # Through Spark Connect the executors' variables do not reach the Python workers; the server's own do.
            "PYTHONPATH": self._properties.get("spark.executorEnv.PYTHONPATH", ""),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self._environment,
        }
        self._process = spawn([*command, "spark-internal"], log=log, env=environment)
        deadline = time.monotonic() + _START_SECONDS
        while "Spark Connect server started at" not in log.read_text(errors="replace"):
            assert self._process.is_alive(), log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def stop(self, *, kill: bool = False) -> None:
        """End it, and its Python workers with it."""
        if self._process is None:
            return
        workers = family_of(self._process)
        self._process.stop(kill=kill)
        for worker in workers:  # they notice by themselves; this is for those that are busy
            worker.stop(kill=True)
        self._process = None
        if not kill:  # one that a failed test has left open would ask the server for minutes when its process ends
            for session in self._sessions:
                session.client._closed = True

    def session(self) -> Any:
        """A new session; whoever made it stops it."""
        from pyspark.sql.connect.session import SparkSession

        builder: Any = SparkSession.builder.remote(self.url)
        self._sessions.append(builder.create())
        return self._sessions[-1]


def daemon_of(session: Any) -> tuple[int, str]:
    """Of the Python process of a task in a session: the pid of its parent, and where its pyspark is from."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pylist([{"parent": os.getppid(), "pyspark": pyspark.__file__}])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "parent long, pyspark string").collect()
    return row.parent, row.pyspark
