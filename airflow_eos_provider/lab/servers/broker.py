"""The lab's brokers: real Kafka nodes, each a broker and a KRaft controller in one.

With three of them all are voters of the controllers' quorum, so that any one may be killed and the others keep running.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.jars.java import jvm_command
from airflow_eos_provider.lab.servers.part import Part, place_log_config, write_properties
from airflow_eos_provider.lab.waiting import broker_answers, run_to_end

#: A node's program.
MAIN_CLASS = "kafka.Kafka"

#: A lone broker's heap; the log is the page cache's business.
HEAP_MEGABYTES = 512

#: The heap of each of several.
SHARED_HEAP_MEGABYTES = 320

#: Formatting a log folder takes 0.7 s alone.
FORMAT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Broker(Part):
    """One broker in a lab's folder.

    :param port: for clients.
    :param controller_port: for the KRaft controllers.
    :param number: the node id, 1 for the first broker.
    :param quorum: the controller ports of all nodes, in the order of their numbers; empty for a node that is alone.
    """

    folder: Path
    cluster_id: str
    port: int
    controller_port: int
    class_path: str
    marker: str
    number: int = 1
    quorum: tuple[int, ...] = ()
    jvm_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "broker" if self.number == 1 else f"broker{self.number}"

    @property
    def log_folder(self) -> Path:
        return self.folder / "data" / self.name

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port, self.controller_port)

    @property
    def bootstrap_servers(self) -> str:
        return self.address

    def answers(self) -> bool:
        return broker_answers(self.lab_client)

    @property
    def lab_client(self) -> KafkaSettings:
        """How the lab itself reaches this broker, with all rights."""
        return KafkaSettings.of(self.bootstrap_servers)

    def properties(self) -> dict[str, str]:
        """The node's settings: Kafka's defaults but for what small nodes need."""
        nodes = len(self.quorum) or 1
        in_sync = str(min(2, nodes))  # of three copies one may be lost
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            **self._quorum_properties(),
            "controller.listener.names": "CONTROLLER",
            **self.listener_properties(),
            "log.dirs": str(self.log_folder),
            "auto.create.topics.enable": "false",
            # Each node holds one replica of everything.
            "default.replication.factor": str(nodes),
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": str(nodes),
            "transaction.state.log.replication.factor": str(nodes),
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": str(nodes),
            "share.coordinator.state.topic.min.isr": in_sync,
            # Fewer partitions of the internal topics start and stop faster; 5 still spread over more than one.
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.num.partitions": "1",
            # Nothing watches the metadata's age, so no empty record is written and synced to the disk twice a second.
            "metadata.max.idle.interval.ms": "0",
            # A group's first rebalance does not wait for members that may come.
            "group.initial.rebalance.delay.ms": "0",
        }

    def listener_properties(self) -> dict[str, str]:
        """The settings of its listeners."""
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }

    def _quorum_properties(self) -> dict[str, str]:
        # Named once and for all: nodes that would have to join a quorum first could not be formatted side by side.
        ports = self.quorum or (self.controller_port,)
        voters = (f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, start=1))
        return {"controller.quorum.voters": ",".join(voters)}

    def prepare(self) -> None:
        """Write the properties file and the configuration of the logging, and format the log folder if it is new."""
        write_properties(self.config, self.properties())
        place_log_config(self.log_config)
        if not (self.log_folder / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        format_arguments = ["format", "-t", self.cluster_id, "-c", str(self.config)]
        command = self._command("kafka.tools.StorageTool", format_arguments)
        run_to_end(f"Formatting {self.log_folder}", command, self.log, FORMAT_SECONDS)

    @property
    def log_config(self) -> Path:
        return self.folder / "log4j2.xml"

    @property
    def start_command(self) -> list[str]:
        return self._command(MAIN_CLASS, [str(self.config)])

    def _command(self, main_class: str, arguments: list[str]) -> list[str]:
        return jvm_command(
            main_class,
            arguments,
            class_path=self.class_path,
            heap_megabytes=SHARED_HEAP_MEGABYTES if self.quorum else HEAP_MEGABYTES,
            marker=self.marker,
            log_config=self.log_config,
            options=self.jvm_options,
        )
