"""A Spark Connect server: one JVM whose Spark a lab's interval runs share, so that none starts one of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.jars.java import SHORT_LIVED
from airflow_eos_provider.lab.ownership import own_process
from airflow_eos_provider.lab.ports import require_free
from airflow_eos_provider.lab.startup_wait import Starting, StartupLimits, wait_until_ready
from airflow_eos_provider.processes import ProcessIdentity, spawn

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: What the server says once it takes calls.
_STARTED = "Spark Connect server started at"

#: Alone it needs eight seconds.
_LIMITS = StartupLimits(idle_seconds=120.0, overall_seconds=900.0)


@dataclass(frozen=True, slots=True)
class SparkConnect:
    """The server of one lab.

    :param folder: the lab's own; receives log, pid file and Spark's scratch files.
    :param port: of the loopback interface; kept over restarts, so that clients find the next server.
    :param marker: the argument that marks the lab's processes.
    :param token: the lab's.
    :param properties: further properties of Spark.
    """

    folder: Path
    port: int
    marker: str
    token: str
    properties: Mapping[str, str]

    @property
    def name(self) -> str:
        return "spark-connect"

    @property
    def log(self) -> Path:
        return self.folder / "spark-connect.log"

    @property
    def pid_file(self) -> Path:
        return spark_connect_pid_file(self.folder)

    @property
    def url(self) -> str:
        """Its address, as clients take it."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def process(self) -> ProcessIdentity | None:
        """Its process, None if it does not run."""
        return own_process(self.pid_file, self.token)

    def start(self) -> ProcessIdentity:
        """Start it and wait until it takes calls; one that runs is left alone.

        :raises ConfigurationError: pyspark is not installed.
        :raises EosError: it does not start; the error shows the end of its log.
        """
        if (running := self.process) is not None:
            return running
        require_free(self.port, self.name)
        scratch = self.folder / "spark"
        scratch.mkdir(parents=True, exist_ok=True)
        said_before = self._times_started()
        process = spawn(
            self._command(scratch),
            log=self.log,
            pid_file=self.pid_file,
            cwd=scratch,  # it makes folders where it stands
            env={"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        wait_until_ready(
            [Starting(self.name, process, self.log)],
            lambda: [] if self._times_started() > said_before else [self.name],
            _LIMITS,
        )
        return process

    def stop(self) -> None:
        """Stop it; its Python workers end with it."""
        if (process := self.process) is not None:
            process.stop()

    def _times_started(self) -> int:
        return self.log.read_text(encoding="utf-8", errors="replace").count(_STARTED) if self.log.exists() else 0

    def _command(self, scratch: Path) -> list[str]:
        properties = {
            "spark.master": "local[2,4]",  # in its own process, two tasks at once, four tries each
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Quoted, since the folder may have spaces. A killed server would leave its temporary files in /tmp.
            "spark.driver.extraJavaOptions": f'{" ".join(SHORT_LIVED)} "{self.marker}" "-Djava.io.tmpdir={scratch}"',
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.local.dir": str(scratch),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.ui.enabled": "false",
            **self.properties,
        }
        file = scratch / "spark-connect.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in properties.items()), encoding="utf-8")
        submit = _spark_home() / "bin" / "spark-submit"
        return [str(submit), "--properties-file", str(file), "--class", _CLASS, "spark-internal"]


def spark_connect_pid_file(folder: Path) -> Path:
    """Where the pid of the server in this folder is written."""
    return folder / "spark-connect.pid"


def _spark_home() -> Path:
    """pyspark's folder, which is found and not imported: it takes a second."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        return Path(place)
    raise ConfigurationError(
        "pyspark is not installed, whose jars have the Spark Connect server.",
        remedy="Install the extra airflow-eos-provider[lab].",
    )
