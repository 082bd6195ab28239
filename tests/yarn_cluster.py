"""Hadoop's ResourceManager and a NodeManager on the loopback interface, of real processes: a cluster for Spark on YARN."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from airflow_eos_provider.lab.jars import ensure_jars
from airflow_eos_provider.lab.java import java_program
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.processes import ProcessIdentity, spawn

#: The jars are of the Hadoop whose client pyspark comes with.
HADOOP = "hadoop-minicluster-3.5.0"

#: Both daemons are up within this time, seconds.
_START_SECONDS = 180

_SERVER = "org.apache.hadoop.yarn.server"


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[Path]:
    """A cluster of one node; the folder of its configuration, for ``HADOOP_CONF_DIR``."""
    jars = ensure_jars(HADOOP, progress=print)
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    for name, properties in _configuration(folder).items():
        (configuration / f"{name}.xml").write_text(_xml(properties))
    class_path = f"{configuration}:{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    started: list[ProcessIdentity] = []
    java_home = Path(java_program()).resolve().parents[1]

    def start(main: str, ready: str) -> None:
        log = folder / f"{main.rsplit('.', 1)[1]}.log"
        command = [str(java_program()), "-Xmx384m", "-cp", class_path, f"{_SERVER}.{main}"]
        started.append(spawn(command, log=log, env={"JAVA_HOME": str(java_home)}))
        deadline = time.monotonic() + _START_SECONDS
        while ready not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert started[-1].is_running(), log.read_text()[-3000:]
            time.sleep(0.2)

    (configuration / "log4j2.properties").write_text(_LOG)
    try:
        start("resourcemanager.ResourceManager", "Transitioned to active state")
        start("nodemanager.NodeManager", "Registered with ResourceManager as")
        yield configuration
    finally:
        for process in reversed(started):
            process.stop()


def _configuration(folder: Path) -> dict[str, dict[str, str]]:
    ports = iter(free_ports(5))
    manager = {
        f"yarn.resourcemanager.{name}": f"127.0.0.1:{next(ports)}"
        for name in ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
    }
    node = {
        "address": "127.0.0.1:0",
        "localizer.address": f"127.0.0.1:{free_ports(1)[0]}",
        "webapp.address": "127.0.0.1:0",
        "hostname": "127.0.0.1",
        "local-dirs": str(folder / "local"),
        "log-dirs": str(folder / "logs"),
        "resource.memory-mb": "6144",
        "resource.cpu-vcores": "4",
        "disk-health-checker.enable": "false",
        "pmem-check-enabled": "false",
        "vmem-check-enabled": "false",
        "env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR,SPARK_LOCAL_IP",
    }
    queue = "yarn.scheduler.capacity"
    return {
        "core-site": {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")},
        "yarn-site": {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            **manager,
            **{f"yarn.nodemanager.{name}": value for name, value in node.items()},
            "yarn.scheduler.minimum-allocation-mb": "256",
        },
        "capacity-scheduler": {
            f"{queue}.root.queues": "default",
            f"{queue}.root.default.capacity": "100",
            f"{queue}.maximum-am-resource-percent": "1",
        },
    }


def _xml(properties: Mapping[str, str]) -> str:
    lines = [
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    return f"<configuration>{''.join(lines)}</configuration>\n"


_LOG = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
