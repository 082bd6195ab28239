"""A Spark Connect server: one JVM whose Spark a lab's interval runs share, so that none starts one of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.files import files_of
from airflow_eos_provider.lab.jars.java import SHORT_LIVED
from airflow_eos_provider.lab.ports import require_free
from airflow_eos_provider.lab.servers.part import Part
from airflow_eos_provider.lab.waiting import listens, wait_for
from airflow_eos_provider.local_processes import ProcessIdentity, spawn

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

SPARK_CONNECT = "spark-connect"


@dataclass(frozen=True, slots=True)
class SparkConnect(Part):
    """The server of one lab, on one port over all restarts, so that clients find the next server."""

    folder: Path
    port: int
    marker: str
    token: str
    properties: Mapping[str, str]

    @property
    def name(self) -> str:
        return SPARK_CONNECT

    @property
    def url(self) -> str:
        """Its address, as clients take it."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def running(self) -> ProcessIdentity | None:
        """Its process if it runs."""
        return self.process(self.token)

    def answers(self) -> bool:
        return listens("127.0.0.1", self.port)

    def start(self) -> ProcessIdentity:
        """Start it and wait until it takes calls; one that runs is left alone."""
        if (running := self.running) is not None:
            return running
        require_free(self.port, self.name)
        command = self.start_command
        process = spawn(
            command,
            log=self.log,
            pid_file=self.pid_file,
            cwd=self._scratch,  # it makes folders where it stands
            env={"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        wait_for(self.name, self.answers, process, self.log)
        return process

    def stop(self) -> None:
        """Stop it; its Python workers end with it."""
        if (process := self.running) is not None:
            process.stop()

    @property
    def _scratch(self) -> Path:
        return self.folder / "spark"

    @property
    def start_command(self) -> list[str]:
        """The command; the properties file that it names is written first."""
        scratch = self._scratch
        scratch.mkdir(parents=True, exist_ok=True)
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


def _spark_home() -> Path:
    for submit in files_of("pyspark", "bin/spark-submit"):
        return submit.parent.parent
    raise ConfigurationError(
        "pyspark is not installed, whose jars have the Spark Connect server.",
        remedy="Install the extra airflow-eos-provider[lab].",
    )
