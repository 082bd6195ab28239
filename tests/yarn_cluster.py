"""A YARN of real processes on the loopback interface: a resource manager and a node manager.

Hadoop's own jar for small clusters has both; the rest of Hadoop is among Spark's jars. The staging folder and all that
containers read are on this machine's disk, so there is no HDFS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import httpx
import pyspark

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.lab.jars.java import SHORT_LIVED, java_program
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.local_processes import ProcessIdentity, spawn
from tests.lab.jars import jars_of
from tests.waiting import until

HADOOP = "hadoop-yarn-3.5.0"

_SPARK_JARS = Path(pyspark.__file__).parent / "jars"


@dataclass(frozen=True)
class YarnCluster:
    """A running YARN."""

    folder: Path
    url: str

    @property
    def environment(self) -> dict[str, str]:
        """What a submission needs to find it."""
        return {"HADOOP_CONF_DIR": str(self.folder / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"}

    @property
    def properties(self) -> dict[str, str]:
        """Spark's, but the master: small containers on the loopback interface, and Spark's jars where they are."""
        return {
            "spark.yarn.jars": f"local:{_SPARK_JARS}/*",
            "spark.yarn.stagingDir": str(self.folder / "staging"),
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.executor.cores": "2",
            "spark.ui.enabled": "false",
            **{f"{where}.SPARK_LOCAL_IP": "127.0.0.1" for where in ("spark.yarn.appMasterEnv", "spark.executorEnv")},
        }

    def applications(self) -> list[dict[str, object]]:
        """All applications, as the REST API has them."""
        found = json.loads(_answer(f"{self.url}/ws/v1/cluster/apps"))["apps"] or {}
        return list(found.get("app", ()))

    def attempts(self, application: str) -> int:
        """How often YARN has started an application's master."""
        answer = _answer(f"{self.url}/ws/v1/cluster/apps/{application}/appattempts")
        return len(json.loads(answer)["appAttempts"]["appAttempt"])


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[YarnCluster]:
    """A YARN whose one node has 4 GB and four cores."""
    jars = jars_of(HADOOP)
    ports = iter(free_ports(8))
    node_web = next(ports)
    cluster = YarnCluster(folder, f"http://127.0.0.1:{next(ports)}")
    _configure(cluster, {"yarn.nodemanager.webapp.address": f"127.0.0.1:{node_web}", **_addresses(ports)})
    started: list[ProcessIdentity] = []

    def start(kind: str) -> None:
        log = folder / f"{kind.rpartition('.')[2]}.log"
        path = f"{folder / 'conf'}:{jars}/*:{_SPARK_JARS}/*"
        program = f"org.apache.hadoop.yarn.server.{kind}"
        started.append(spawn([str(java_program()), *SHORT_LIVED, "-Xmx512m", "-cp", path, program], log=log))

    try:
        for kind in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            start(kind)
        nodes = f"{cluster.url}/ws/v1/cluster/nodes"
        until(lambda: '"state":"RUNNING"' in _answer(nodes), f"YARN's node, whose logs are in {folder}", seconds=60)
        yield cluster
    finally:
        for process in reversed(started):
            process.stop()


def _addresses(ports: Iterator[int]) -> dict[str, str]:
    names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    found = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{next(ports)}" for name in names}
    for name in ("address", "localizer.address"):
        found[f"yarn.nodemanager.{name}"] = f"127.0.0.1:{next(ports)}"
    return found


def _configure(cluster: YarnCluster, addresses: Mapping[str, str]) -> None:
    scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    folder = cluster.folder
    _write(
        folder / "conf" / "yarn-site.xml",
        {
            **addresses,
            "yarn.resourcemanager.webapp.address": cluster.url.removeprefix("http://"),
            "yarn.resourcemanager.scheduler.class": scheduler,
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            # Of a test's machine neither says anything.
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
        },
    )
    _write(folder / "conf" / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in properties.items()
    )
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


def _answer(url: str) -> str:
    """What is there. The first answer takes long on a busy machine: the server loads what it is made of for it."""
    try:
        return httpx.get(url, timeout=60, trust_env=False).raise_for_status().text
    except httpx.HTTPError as error:
        raise UnreachableError(f"{url}: {error!r}") from error
