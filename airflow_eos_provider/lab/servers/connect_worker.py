"""One Connect worker of the lab: real ConnectDistributed with a properties file, port, log and pid file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.jars.jars import DEFAULT_VERSION
from airflow_eos_provider.lab.jars.java import jvm_command
from airflow_eos_provider.lab.servers.part import Part, place_log_config, write_properties
from airflow_eos_provider.lab.waiting import is_healthy

#: A worker's program.
MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"

#: A worker's heap; with a few connectors it uses half of it.
HEAP_MEGABYTES = 448


@dataclass(frozen=True, slots=True)
class Worker(Part):
    """One worker in a lab's folder.

    :param number: 1 for the first worker, ``w1``.
    :param port: of its REST API.
    :param version: of Connect.
    """

    folder: Path
    number: int
    port: int
    class_path: str
    marker: str
    version: str = DEFAULT_VERSION
    jvm_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"w{self.number}"

    @property
    def host(self) -> str:
        """The address that its REST API listens on and advertises."""
        return "127.0.0.1"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> str:
        return self.url

    @property
    def rest_settings(self) -> RestSettings:
        """How the lab itself calls the REST API."""
        return RestSettings()

    def answers(self) -> bool:
        return is_healthy(self.url, self.rest_settings)

    @property
    def log_config_name(self) -> str:
        """Kafka logs by log4j2 since 4.0, by reload4j before."""
        return "log4j2.xml" if int(self.version.partition(".")[0]) >= 4 else "reload4j.properties"

    @property
    def log_config(self) -> Path:
        return self.folder / self.log_config_name

    @property
    def start_command(self) -> list[str]:
        return jvm_command(
            MAIN_CLASS,
            [str(self.config)],
            class_path=self.class_path,
            heap_megabytes=HEAP_MEGABYTES,
            marker=self.marker,
            log_config=self.log_config,
            options=self.jvm_options,
        )

    def prepare(self, properties: Mapping[str, str]) -> None:
        """Write the properties file and the configuration of the logging."""
        write_properties(self.config, properties)
        place_log_config(self.log_config)

    def properties(
        self,
        *,
        bootstrap_servers: str,
        group_id: str,
        mode: Mode,
        rebalance_delay_ms: int,
        session_timeout_ms: int | None = None,
        replication_factor: int = 1,
    ) -> dict[str, str]:
        """The worker's settings: Connect's defaults but for a small cluster's needs."""
        properties = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            MODE_PROPERTY: mode.value,
            "listeners": self.url,
            "rest.advertised.host.name": self.host,
            "rest.advertised.port": str(self.port),
            "scheduled.rebalance.max.delay.ms": str(rebalance_delay_ms),
            "config.storage.topic": f"{group_id}-configs",
            "config.storage.replication.factor": str(replication_factor),
            "offset.storage.topic": f"{group_id}-offsets",
            "offset.storage.replication.factor": str(replication_factor),
            "offset.storage.partitions": "5",
            "status.storage.topic": f"{group_id}-status",
            "status.storage.replication.factor": str(replication_factor),
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "5000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "connector.client.config.override.policy": "All",
            # All plugins of the lab have manifests: half the start-up time of the default, which also scans for others.
            "plugin.discovery": "service_load",
        }
        if mode is Mode.PREPARING:
            properties["isolation.level"] = "read_committed"  # as a roll leaves it; without it, none goes on from there
        if session_timeout_ms is not None:
            properties["session.timeout.ms"] = str(session_timeout_ms)
            # A member learns of a rebalance by its heartbeat, so each rebalance and each gate of a roll waits for one.
            properties["heartbeat.interval.ms"] = str(min(3000, session_timeout_ms // 20))
        return properties

    def config_bytes(self) -> bytes:
        """The properties file as it is now."""
        return self.config.read_bytes()

    def mode_in_file(self) -> Mode | None:
        """The mode that the properties file holds now; None where the file cannot be read or says nothing valid."""
        try:
            return Mode.parse(parse(self.config_bytes()).get(MODE_PROPERTY, Mode.DISABLED.value))
        except (OSError, ConfigurationError):
            return None

    def description(self) -> dict[str, object]:
        """The worker's entry in the cluster file."""
        return {
            "url": self.url,
            "config": str(self.config),
            "log": str(self.log),
            "pid_file": str(self.pid_file),
            "start": self.start_command,
            "cwd": str(self.folder),
            "env": {},
        }
