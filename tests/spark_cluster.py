"""A standalone Spark cluster of two hosts on the loopback interface, of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark

from airflow_eos_provider.lab.jars.java import java_program
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.local_processes import ProcessIdentity, spawn
from tests.lab.spark_class_data import ensure_spark_archive, spark_jvm_options
from tests.waiting import until

#: Spark never copies a task to the host that it runs on; addresses of the loopback interface are hosts enough.
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each; the master's address.

    :param folder: for logs; each worker has a folder there by the name of its host, in which an executor's directory is
        two levels below.
    """
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
            (folder / host).mkdir()
            where = ["-c", "1", "-m", "1g", "-d", str(folder / host)]
            log = start("worker.Worker", "--host", host, "--webui-port", "0", *where, url)
            until(partial(_is_registered, log), f"the registration of a worker, whose log is {log}", seconds=60)
        yield url
    finally:
        for process in reversed(started):
            process.stop()


def jvm_properties() -> dict[str, str]:
    """Properties that start driver and executors with the class-data archive."""
    return {f"spark.{who}.extraJavaOptions": spark_jvm_options() for who in ("driver", "executor")}


def loopback_properties(master: str) -> dict[str, str]:
    """Properties of an application whose driver is on this machine, with an executor on each host."""
    return {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **jvm_properties(),
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
    }


def _is_registered(log: Path) -> bool:
    return "Successfully registered" in log.read_text()
