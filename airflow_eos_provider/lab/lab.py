"""The lab: real Kafka, Connect workers and PostgreSQL on this machine, started, found again, and taken down whole.

A larger lab is a subclass: it makes other brokers and workers (:meth:`Lab._make_broker`, :meth:`Lab._make_worker`), has
further parts (:attr:`Lab._others`) that brokers need (:meth:`Lab._before_brokers`) or workers
(:meth:`Lab._before_workers`), and describes itself in more words (:meth:`Lab._cluster_files`, :meth:`Lab.summary`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.files import write_atomically
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.lab_processes import exclusive, marker, own_process, strays
from airflow_eos_provider.lab.lab_status import LabStatus, ProcessStatus
from airflow_eos_provider.lab.ports import free_ports, require_free
from airflow_eos_provider.lab.record import LabOptions, LabRecord
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.servers.connect_worker import Worker
from airflow_eos_provider.lab.servers.part import Part, pid_file_of
from airflow_eos_provider.lab.servers.postgres import USER, Postgres
from airflow_eos_provider.lab.servers.spark_connect import SPARK_CONNECT, SparkConnect
from airflow_eos_provider.lab.teardown import remove_folder, stop_all, take_down
from airflow_eos_provider.lab.waiting import wait_for_broker, wait_for_group, wait_for_worker
from airflow_eos_provider.local_processes import ProcessIdentity, spawn

__all__ = ["Lab", "LabOptions"]

Progress = Callable[[str], None]

#: The processes of a lab's parts by their names, None for those that do not run.
Running = Mapping[str, ProcessIdentity | None]

#: The ports of a broker or worker that was just killed are free again within this time.
PORT_FREE_SECONDS = 15.0


def _silent(line: str) -> None:
    """Drops progress lines."""


class Lab:
    """One lab, up or not, in a folder of its own."""

    record_type: ClassVar[type[LabRecord]] = LabRecord

    def __init__(self, root: Path, record: LabRecord) -> None:
        self.root = root
        self._record = record

    @classmethod
    def load(cls, root: Path) -> Self:
        """The lab whose own folder this is (``<options.root>/<name>``)."""
        root = root.absolute()
        record = cls.record_type.read(root)
        if record is None or not record.complete:
            raise ConfigurationError(
                f"There is {'no' if record is None else 'only a half-started'} lab in {root}.",
                remedy="Start one with 'eos lab up'.",
            )
        return cls(root, record)

    @classmethod
    def up(cls, options: LabOptions | None = None, progress: Progress = _silent) -> Self:
        """Start this lab, or what is missing of it.

        What a killed ``up`` left behind is cleared first. A lab that was up before keeps its data.

        :raises RefusedError: there is a lab in this folder, with other options.
        """
        options = options or cls.record_type.options_type()
        root = options.folder
        with exclusive(root, progress):
            record = cls.record_type.read(root)
            if record is not None and record.complete:
                if differences := record.differences(options):
                    raise RefusedError(
                        f"The lab {options.name} in {root} has other options: {'; '.join(differences)}.",
                        remedy="Take it down first ('eos lab down'), or give the new one another --name.",
                    )
                lab = cls(root, record)
                lab._start_missing(progress)
                return lab
            if root.exists() and record is None and any(entry.name != ".lab.json.new" for entry in root.iterdir()):
                raise RefusedError(
                    f"{root} is not empty, and not a lab.", remedy="Choose another --name or --dir, or empty it."
                )
            if cls.stop_all(root, record, True):
                progress("Cleared what an interrupted start had left behind")
            remove_folder(root)
            return cls._create(options, progress)

    @classmethod
    def stop_all(cls, root: Path, record: LabRecord | None, kill: bool) -> int:
        """Stop all processes of the lab in a folder: :func:`~airflow_eos_provider.lab.teardown.stop_all`."""
        return stop_all(root, record, kill)

    @classmethod
    def _create(cls, options: LabOptions, progress: Progress) -> Self:
        root = options.folder
        root.mkdir(parents=True)
        record = cls.record_type.draw(options)
        record.write(root)  # before the first process, so that the next command finds all processes by the token
        lab = cls(root, record)
        try:
            for version in {jars.DEFAULT_VERSION, options.connect_version}:
                jars.ensure_jars(version, progress=progress, jvm_options=[marker(root, record.token)])
            lab.prepare()
            lab._start_missing(progress)
        except BaseException:
            cls.stop_all(root, record, True)  # the logs stay, for the error points at them
            raise
        lab._save(replace(record, complete=True))
        return lab

    def prepare(self) -> None:
        """Write all files, format the brokers' log folders and make PostgreSQL's data folder."""
        for worker in self.workers:
            self._prepare_worker(worker, self.options.mode)
        self._write_cluster_files()
        servers: list[Broker | Postgres] = [*self.brokers, *([self._postgres] if self._postgres else [])]
        with ThreadPoolExecutor(len(servers)) as pool:
            for prepared in [pool.submit(server.prepare) for server in servers]:
                prepared.result()

    def _start_missing(self, progress: Progress) -> None:
        """Start whatever does not run, and wait until everything is ready."""
        running = {part.name: part.process(self._record.token) for part in self._parts}
        for stray in strays(self.root, self._record.token, self._known()):
            progress(f"Stopping pid {stray.pid}, which an interrupted command left behind")
            stray.stop()
        missing = [part.name for part in self._parts if running[part.name] is None]
        if not missing and all(worker.answers() for worker in self.workers):
            return
        progress(f"Starting {', '.join(missing)}" if missing else "Waiting for a worker that is not healthy")
        postgres = self._postgres
        server = (running[postgres.name] or self._start(postgres)) if postgres is not None else None
        self._before_brokers(running)
        # All brokers before the first wait: one of three is not ready before a second one votes for its controller.
        brokers = [(broker, running[broker.name] or self._start(broker)) for broker in self.brokers]
        for broker, process in brokers:
            wait_for_broker(broker.lab_client, process, broker.log)
        if postgres is not None and server is not None:
            postgres.wait(server)
        self._before_workers()
        # All workers at once: each spends half of its start waiting.
        started = [(worker, running[worker.name] or self._start(worker)) for worker in self.workers]
        for worker, process in started:
            wait_for_worker(worker.url, process, worker.log, worker.rest_settings)
            progress(f"{worker.name} is ready at {worker.url}")
        if started:
            wait_for_group(self.kafka, self.group_id, len(started))

    def _before_brokers(self, running: Running) -> None:
        """Start what the brokers need."""

    def _before_workers(self) -> None:
        """Finish what the workers need; the brokers run."""

    def _start(self, part: Part, port_seconds: float = 0.0) -> ProcessIdentity:
        """Start a part that does not run, without a wait until it is ready.

        Its ports may be taken for so long, by its own process that was killed a moment ago.
        """
        for port in part.ports:
            require_free(port, part.name, seconds=port_seconds)
        return spawn(part.start_command, log=part.log, pid_file=part.pid_file, cwd=self.root)

    def _known(self) -> list[ProcessIdentity]:
        """The processes that the lab knows to be its own."""
        token = self._record.token
        processes = [part.process(token) for part in self._parts]
        processes.append(own_process(pid_file_of(self.root, SPARK_CONNECT), token))
        return [process for process in processes if process is not None]

    def down(self, keep_data: bool = False, progress: Progress = _silent) -> None:
        """Stop everything, workers first, and remove the lab's folder, unless the next ``up`` shall find its data."""
        take_down(self.root, keep_data=keep_data, progress=progress, stop=self.stop_all)

    # What it consists of

    @property
    def options(self) -> LabOptions:
        """The options that the lab was made with."""
        return self._record.options

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, comma-separated."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def kafka(self) -> KafkaSettings:
        """How the lab itself reaches its brokers, with all rights."""
        settings = [broker.lab_client for broker in self.brokers]
        return KafkaSettings.of(",".join(one.bootstrap_servers for one in settings), settings[0].properties)

    @property
    def group_id(self) -> str:
        return self.options.group

    @property
    def connect_urls(self) -> list[str]:
        """The workers' REST addresses, in order."""
        return [worker.url for worker in self.workers]

    @property
    def cluster_file(self) -> Path:
        return self.root / "eos.yaml"

    @property
    def data_dir(self) -> Path:
        return self.root / "data"

    @property
    def broker(self) -> Broker:
        """The first broker, the only one unless the lab was made with more."""
        return self.brokers[0]

    @property
    def brokers(self) -> tuple[Broker, ...]:
        record = self._record
        controllers = tuple(controller for _, controller in record.broker_ports)
        return tuple(
            self._make_broker(
                folder=self.root,
                cluster_id=record.cluster_id,
                port=port,
                controller_port=controller_port,
                class_path=jars.class_path(record.broker_jars),
                marker=marker(self.root, record.token),
                number=number,
                quorum=controllers if len(controllers) > 1 else (),
            )
            for number, (port, controller_port) in enumerate(record.broker_ports, start=1)
        )

    @staticmethod
    def _make_broker(**fields: Any) -> Broker:
        return Broker(**fields)

    @property
    def workers(self) -> list[Worker]:
        record = self._record
        return [
            self._make_worker(
                folder=self.root,
                number=number,
                port=port,
                class_path=jars.class_path(record.worker_jars, test_connectors=record.options.test_connectors),
                marker=marker(self.root, record.token),
                version=record.options.connect_version,
            )
            for number, port in enumerate(record.worker_ports, start=1)
        ]

    def _make_worker(self, **fields: Any) -> Worker:
        return Worker(**fields)

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server, if the lab was made with one."""
        if self._postgres is None:
            raise ConfigurationError(
                f"The lab {self.name} has no PostgreSQL.",
                remedy="Make one with it: 'eos lab up --postgres', or LabOptions(postgres=True).",
            )
        return self._postgres

    @property
    def _postgres(self) -> Postgres | None:
        record = self._record
        if record.postgres_port is None:
            return None
        return Postgres(self.root, record.postgres_port, marker(self.root, record.token))

    @property
    def _others(self) -> list[Part]:
        """Parts besides brokers, PostgreSQL and workers."""
        return []

    @property
    def _parts(self) -> list[Part]:
        return [*self.brokers, *([self._postgres] if self._postgres else []), *self._others, *self.workers]

    def spark_connect(self, properties: Mapping[str, str]) -> SparkConnect:
        """A Spark Connect server of this lab, on a port that is free now. :meth:`up` does not start it."""
        (port,) = free_ports(1)
        return SparkConnect(self.root, port, marker(self.root, self._record.token), self._record.token, properties)

    def cluster(self) -> ConnectCluster:
        """The lab as its cluster file describes it."""
        return ConnectCluster.from_file(self.cluster_file)

    def summary(self) -> dict[str, object]:
        """What ``eos lab up`` prints."""
        postgres = self._postgres
        found: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "connect_urls": self.connect_urls,
            "group_id": self.group_id,
            "cluster_file": str(self.cluster_file) if self.workers else None,
            "data_dir": str(self.data_dir),
        }
        if postgres is not None:
            password_file = str(postgres.password_file)
            found["postgres"] = {"address": postgres.address, "user": USER, "password_file": password_file}
        return found

    def status(self) -> LabStatus:
        """Which processes run and answer now."""
        token = self._record.token
        processes = tuple(ProcessStatus.of(part, token) for part in self._parts)
        unknown = tuple(process.pid for process in strays(self.root, token, self._known()))
        return LabStatus(self.name, self.root, self.bootstrap_servers, self.group_id, processes, unknown)

    # Single workers

    def worker_process(self, index: int) -> ProcessIdentity | None:
        """The process of ``connect_urls[index]``, None if it does not run."""
        return self.workers[index].process(self._record.token)

    def stop_worker(self, index: int, kill: bool = False) -> None:
        """Stop the worker of ``connect_urls[index]``, if it runs; killed, it cannot leave its group."""
        process = self.worker_process(index)
        if process is not None:
            process.stop(kill=kill)

    def start_worker(self, index: int, wait: bool = True) -> ProcessIdentity:
        """Start the worker of ``connect_urls[index]`` by its properties file as it is now, if it does not run."""
        worker = self.workers[index]
        process = self.worker_process(index) or self._start(worker, PORT_FREE_SECONDS)
        if wait:
            wait_for_worker(worker.url, process, worker.log, worker.rest_settings)
        return process

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; returns when it is known."""
        topics = Topics(self.kafka)
        if not topics.create(name, partitions, config or {}, replicas=-1):  # replicated as by default
            raise RefusedError(f"There is a topic {name} already.", remedy="Choose another name, or delete it.")

    # Files

    def _prepare_worker(self, worker: Worker, mode: Mode) -> None:
        properties = worker.properties(
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group_id,
            mode=mode,
            rebalance_delay_ms=self.options.rebalance_delay_ms,
            session_timeout_ms=self.options.session_timeout_ms,
            replication_factor=len(self.brokers),
        )
        worker.prepare({**properties, **self.options.worker_properties})

    def _cluster_files(self) -> dict[Path, dict[str, object]]:
        """The content of each cluster file."""
        content: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group_id,
            "workers": [worker.description() for worker in self.workers],
        }
        return {self.cluster_file: content}

    def _write_cluster_files(self) -> None:
        if not self.workers:
            return
        for file, content in self._cluster_files().items():
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=200)
            write_atomically(file, f"# Written by 'eos lab up' for the lab {self.name}.\n{text}")

    def _save(self, record: LabRecord) -> None:
        record.write(self.root)
        self._record = record
