"""The lab: real Kafka, Connect workers and PostgreSQL on this machine, started, found again, and taken down whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from airflow_eos_provider.acls.rules import Rule, WorkerFacts, worker_rules
from airflow_eos_provider.acls.tool_rules import READING, VERBS, ToolFacts, tool_rules
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.acl_values import Acl
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab import jars
from airflow_eos_provider.lab.broker import Broker, write_properties
from airflow_eos_provider.lab.class_data import ensure_archives
from airflow_eos_provider.lab.enrolment import allow, enrol
from airflow_eos_provider.lab.issuer import Issuer
from airflow_eos_provider.lab.java import java_program
from airflow_eos_provider.lab.machine import Machine
from airflow_eos_provider.lab.machine_login import MachineLogin, public_key
from airflow_eos_provider.lab.machine_needs import require_machines
from airflow_eos_provider.lab.machine_root import Root
from airflow_eos_provider.lab.machine_sudoers import grant
from airflow_eos_provider.lab.machine_worker import MachineWorker
from airflow_eos_provider.lab.ownership import exclusive, marker, own_process, strays
from airflow_eos_provider.lab.ports import free_ports, require_free
from airflow_eos_provider.lab.postgres import USER, Postgres
from airflow_eos_provider.lab.record import LabOptions, LabRecord, write_atomically
from airflow_eos_provider.lab.security import Principal, Security
from airflow_eos_provider.lab.spark_connect import SparkConnect, spark_connect_pid_file
from airflow_eos_provider.lab.status import LabStatus, look_at, process_of
from airflow_eos_provider.lab.teardown import remove_folder, stop_all, take_down
from airflow_eos_provider.lab.waiting import (
    is_healthy,
    wait_for_broker,
    wait_for_group,
    wait_for_issuer,
    wait_for_machine,
    wait_for_postgres,
    wait_for_worker,
)
from airflow_eos_provider.lab.worker import Worker
from airflow_eos_provider.processes import ProcessIdentity, spawn
from airflow_eos_provider.rollout.hosts.process.worker_process import wait_until_port_is_free

__all__ = ["Lab", "LabOptions"]

Progress = Callable[[str], None]

#: What a lab consists of.
Part = Broker | Issuer | Postgres | Machine | Worker

#: The ports of a broker or worker that was just killed are free again within this time.
PORT_FREE_SECONDS = 15.0


def _silent(line: str) -> None:
    """Drops progress lines."""


class Lab:
    """One lab, up or not.

    :ivar root: the lab's own folder.
    """

    def __init__(self, root: Path, record: LabRecord) -> None:
        self.root = root
        self._record = record

    @classmethod
    def load(cls, root: Path) -> Lab:
        """The lab whose own folder this is (``<options.root>/<name>``).

        :raises ConfigurationError: there is none, or its start was never finished.
        """
        root = root.absolute()
        record = LabRecord.read(root)
        if record is None or not record.complete:
            raise ConfigurationError(
                f"There is {'no' if record is None else 'only a half-started'} lab in {root}.",
                remedy="Start one with 'eos lab up'.",
            )
        return cls(root, record)

    @classmethod
    def up(cls, options: LabOptions | None = None, progress: Progress = _silent) -> Lab:
        """Have this lab up: start it, start what is missing of it, or find that nothing is to be done.

        What a killed ``up`` left behind is cleared first. A lab that was up before goes on with its data.

        :param progress: receives a line for each step.
        :raises RefusedError: the lab is there with other options.
        :raises EosError: a part of it does not start; the error shows the end of that part's log.
        """
        options = options or LabOptions()
        root = options.folder
        with exclusive(root, progress):
            record = LabRecord.read(root)
            if record is not None and record.complete:
                lab = cls(root, record)
                lab._require(options)
                lab._start_missing(progress)
                return lab
            if root.exists() and record is None and any(entry.name != ".lab.json.new" for entry in root.iterdir()):
                raise RefusedError(
                    f"{root} holds something, but not a lab.", remedy="Choose another --name or --dir, or empty it."
                )
            if stop_all(root, record, kill=True):
                progress("Cleared what an interrupted start had left behind")
            remove_folder(root)
            return cls._create(options, progress)

    @classmethod
    def _create(cls, options: LabOptions, progress: Progress) -> Lab:
        root = options.folder
        if options.machines:
            require_machines(with_clocks=bool(options.clock_offsets))
        root.mkdir(parents=True)
        record = LabRecord.draw(options)
        record.write(root)  # before the first process, so that whoever comes after us can tell them by the token
        lab = cls(root, record)
        try:
            for version in {jars.DEFAULT_VERSION, options.connect_version}:
                jars.ensure_jars(version, progress=progress, jvm_options=[marker(root, record.token)])
            ensure_archives(marker(root, record.token), progress)
            lab.prepare()
            lab._start_missing(progress)
        except BaseException:
            stop_all(root, record, kill=True)  # the logs stay, for the error points at them
            raise
        lab._save(replace(record, complete=True))
        return lab

    def prepare(self) -> None:
        """Write all files, format the brokers' log folders and make PostgreSQL's data folder."""
        if self.security:
            self.security.make()
        for log_config in {
            *(broker.log_config for broker in self.brokers),
            *(worker.log_config for worker in self.workers if not isinstance(worker, MachineWorker)),
        }:
            shutil.copyfile(Path(__file__).with_name(log_config.name), log_config)
        self._prepare_machines()
        for worker in self.workers:
            self._write_worker(worker, self.options.mode)
        self._write_cluster_file()
        servers = [part for part in self._parts if isinstance(part, Broker | Postgres)]
        with ThreadPoolExecutor(len(servers)) as pool:
            for prepared in [pool.submit(server.prepare) for server in servers]:
                prepared.result()

    def _prepare_machines(self) -> None:
        """Make the machines' own files, and what logs in to them."""
        machines = self.machines
        if not machines:
            return
        login = MachineLogin(self.root)
        login.write(machines)
        self.data_dir.mkdir(exist_ok=True)
        self.data_dir.chmod(0o1777)  # connectors on the machines read and write there, too, as another user
        for machine in machines:
            machine.prepare(
                Root(
                    name=machine.name,
                    address=machine.address,
                    ssh_port=machine.ssh_port,
                    hosts={each.name: each.address for each in machines},
                    public_key=public_key(login.key),
                    host_key=(machine.host_key.read_text(encoding="ascii"), public_key(machine.host_key)),
                    clock_offset_seconds=self.options.clock_offsets.get(machine.name, 0),
                )
            )

    def _wait_for_machines(self, started: Iterable[tuple[Machine, ProcessIdentity]]) -> None:
        """Wait for sshd on each; a new lab then grants its login there what a roll needs."""
        machines = {}
        for machine, process in started:
            wait_for_machine(machine.name, (machine.address, machine.ssh_port), process, machine.log)
            machines[machine.name] = machine
        if machines and not self._record.complete:
            workers = [worker for worker in self.cluster().workers if worker.machine is not None]
            grant({str(worker.machine): worker for worker in workers}, machines)

    def _start_missing(self, progress: Progress) -> None:
        """Start whatever does not run, and wait until everything is ready."""
        running = {part.name: process_of(part, self._record.token) for part in self._parts}
        for stray in strays(self.root, self._record.token, self._known()):
            progress(f"Stopping pid {stray.pid}, which an interrupted command left behind")
            stray.stop()
        missing = [part.name for part in self._parts if running[part.name] is None]
        if not missing and all(is_healthy(worker.url, worker.rest_settings) for worker in self.workers):
            return
        progress(f"Starting {', '.join(missing)}" if missing else "Waiting for a worker that is not healthy")
        # Beside the brokers, which their workers wait for.
        machines = [(machine, running[machine.name] or machine.boot()) for machine in self.machines]
        postgres = self._postgres
        server = (running[postgres.name] or self._spawn(postgres)) if postgres is not None else None
        if (issuer := self.issuer) is not None:  # before the brokers: they read its keys when they start
            wait_for_issuer(issuer, running[issuer.name] or self._spawn(issuer))
        # All brokers before the first wait: one of three is not ready before a second one votes for its controller.
        brokers = [(broker, running[broker.name] or self._spawn(broker)) for broker in self.brokers]
        for broker, process in brokers:
            wait_for_broker(broker.lab_client, process, broker.log)
        if self.security and not self._record.complete:
            enrol(self.kafka, self.security.logins())
            self.allow(rule.acl for rule in self._first_rules())
        if postgres is not None and server is not None:
            wait_for_postgres(postgres, server)
        self._wait_for_machines(machines)
        # All workers at once: each spends half of its start waiting.
        started = [(worker, running[worker.name] or self._start(worker)) for worker in self.workers]
        for worker, process in started:
            wait_for_worker(worker.url, process, worker.log, worker.rest_settings)
            progress(f"{worker.name} is ready at {worker.url}")
        if started:
            wait_for_group(self.kafka, self.group_id, len(started))

    def _first_rules(self) -> list[Rule]:
        """What the workers need in the lab's mode, and ``eos``; connectors get their rights as on any cluster."""
        operator, reader = (self.tool_facts(name) for name in (Principal.OPERATOR, Principal.READER))
        workers = worker_rules(self.worker_facts(self.options.mode))
        return [*workers, *tool_rules(operator, VERBS), *tool_rules(reader, READING)]

    def tool_facts(self, principal: Principal, own_topics: Iterable[str] = ()) -> ToolFacts:
        """What decides the rights of ``eos`` in a secured lab.

        :param own_topics: offsets topics of connectors.
        """
        own = tuple(own_topics)
        configs, offsets, status = (f"{self.group_id}-{kind}" for kind in ("configs", "offsets", "status"))
        return ToolFacts(
            group_id=self.group_id,
            principal=principal.acl_name,
            config_topic=configs,
            topics=[configs, offsets, status, *own],
            offsets_topics=[offsets, *own],
            id_prefixes=[f"{self.group_id}-"],
            own_topics=own,
        )

    def worker_facts(self, mode: Mode) -> WorkerFacts:
        """What decides the rights of a secured lab's workers."""
        return WorkerFacts(
            group_id=self.group_id,
            config_topic=f"{self.group_id}-configs",
            offsets_topic=f"{self.group_id}-offsets",
            status_topic=f"{self.group_id}-status",
            mode=mode,
            principal=Principal.WORKER.acl_name,
        )

    def _start(self, worker: Worker) -> ProcessIdentity:
        """Start a worker that does not run.

        :returns: its process; for one on a machine what keeps the machine on, since the unit may be started anew.
        """
        return worker.start() if isinstance(worker, MachineWorker) else self._spawn(worker)

    def _known(self) -> list[ProcessIdentity]:
        """The processes that the lab knows to be its parts."""
        token = self._record.token
        processes = [process_of(part, token) for part in self._parts]
        processes.append(own_process(spark_connect_pid_file(self.root), token))
        return [each for each in (*processes, *(m.first_process for m in self.machines)) if each is not None]

    def _spawn(self, part: Broker | Issuer | Postgres | Worker) -> ProcessIdentity:
        for port in part.ports:
            require_free(port, part.name)
        return spawn(part.start_command, log=part.log, pid_file=part.pid_file, cwd=self.root)

    def _spawn_again(self, part: Broker | Worker) -> ProcessIdentity:
        """Start a part that may have been killed a moment ago, when its last thread has given up its ports."""
        for port in part.ports:
            wait_until_port_is_free(f"http://127.0.0.1:{port}", PORT_FREE_SECONDS)
        return self._spawn(part)

    def down(self, keep_data: bool = False, progress: Progress = _silent) -> None:
        """Stop everything, workers first, and remove the lab's folder.

        :param keep_data: leave the folder, so that the next ``up`` goes on where this lab was.
        :raises EosError: something is left that cannot be stopped or removed.
        """
        take_down(self.root, keep_data=keep_data, progress=progress)

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
    def security(self) -> Security | None:
        """The logins and certificates of a secured lab, None of another."""
        return Security(self.root / "security") if self.options.secure else None

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
    def reader_file(self) -> Path:
        """The cluster file of a secured lab for whoever may only look."""
        return self.root / "eos-reader.yaml"

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
        return tuple(
            Broker(
                folder=self.root,
                cluster_id=record.cluster_id,
                port=port,
                controller_port=controller_port,
                class_path=jars.class_path(record.jars),
                marker=marker(self.root, record.token),
                number=number,
                quorum=tuple(controller for _, controller in record.broker_ports) if record.other_brokers else (),
                security=self.security,
                secured_ports=record.secured_ports[number - 1] if record.secured_ports else None,
            )
            for number, (port, controller_port) in enumerate(record.broker_ports, start=1)
        )

    @property
    def workers(self) -> list[Worker]:
        record = self._record
        machines = self.machines
        workers: list[Worker] = []
        for number, port in enumerate(record.worker_ports, start=1):
            on_machine = number <= len(machines)
            kind = partial(MachineWorker, machine=machines[number - 1]) if on_machine else Worker
            workers.append(
                kind(
                    folder=self.root,
                    number=number,
                    port=port,
                    class_path=jars.class_path(record.worker_jars, test_connectors=record.options.test_connectors),
                    marker=marker(self.root, record.token),
                    version=record.options.connect_version,
                    security=self.security,
                )
            )
        return workers

    @property
    def machines(self) -> list[Machine]:
        """The machines on which the first workers live, in order."""
        record = self._record
        java = java_program().resolve().parent.parent
        bound = [str(jars.cache_folder().parent), f"rw:{self.data_dir}"]
        if not java.is_relative_to("/usr"):
            bound.append(str(java))
        return [
            Machine(lab_folder=self.root, number=number, ssh_port=port, token=record.token, bound=tuple(bound))
            for number, port in enumerate(record.machine_ports, start=1)
        ]

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server.

        :raises ConfigurationError: the lab was made without one.
        """
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
    def _parts(self) -> list[Part]:
        beside = [part for part in (self.issuer, self._postgres) if part is not None]
        return [*self.brokers, *beside, *self.machines, *self.workers]

    @property
    def issuer(self) -> Issuer | None:
        """The issuer of tokens of a secured lab, None of another."""
        record = self._record
        if self.security is None:
            return None
        return Issuer(self.root, self.security, record.secured_ports[0].issuer, marker(self.root, record.token))

    def spark_connect(self) -> SparkConnect:
        """A Spark Connect server of this lab, on a port that is free now. It is no part that :meth:`up` starts."""
        (port,) = free_ports(1)
        return SparkConnect(self.root, port, marker(self.root, self._record.token), self._record.token)

    @property
    def token_servers(self) -> str:
        """The brokers of a secured lab where they take tokens, comma-separated."""
        return ",".join(f"127.0.0.1:{ports.tokens}" for ports in self._record.secured_ports)

    def cluster(self) -> ConnectCluster:
        """The lab as its cluster file describes it."""
        return ConnectCluster.from_file(self.cluster_file)

    def summary(self) -> dict[str, object]:
        """What ``eos lab up`` prints."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "connect_urls": self.connect_urls,
            "group_id": self.group_id,
            "cluster_file": str(self.cluster_file) if self.workers else None,
            "data_dir": str(self.data_dir),
            **self._tokens_summary(),
            **self._postgres_summary(),
            **self._machines_summary(),
        }

    def _machines_summary(self) -> dict[str, object]:
        machines = [{"name": each.name, "address": each.address, "ssh_port": each.ssh_port} for each in self.machines]
        return {"machines": machines, "ssh_config": str(MachineLogin(self.root).config)} if machines else {}

    def _tokens_summary(self) -> dict[str, object]:
        issuer = self.issuer
        return {} if issuer is None else {"tokens": {"bootstrap_servers": self.token_servers, "issuer": issuer.address}}

    def _postgres_summary(self) -> dict[str, object]:
        postgres = self._postgres
        if postgres is None:
            return {}
        return {"postgres": {"address": postgres.address, "user": USER, "password_file": str(postgres.password_file)}}

    def status(self) -> LabStatus:
        """Which processes run and answer now."""
        token = self._record.token
        processes = tuple(look_at(part, token) for part in self._parts)
        unknown = tuple(process.pid for process in strays(self.root, token, self._known()))
        return LabStatus(self.name, self.root, self.bootstrap_servers, self.group_id, processes, unknown)

    # Single brokers and workers

    def worker_process(self, index: int) -> ProcessIdentity | None:
        """The process of ``connect_urls[index]``, None if it does not run."""
        return process_of(self.workers[index], self._record.token)

    def broker_process(self, index: int = 0) -> ProcessIdentity | None:
        """The process of ``brokers[index]``, None if it does not run."""
        return own_process(self.brokers[index].pid_file, self._record.token)

    def stop_broker(self, index: int = 0, kill: bool = False) -> None:
        """Stop ``brokers[index]``; nothing to do if it does not run.

        :param kill: by SIGKILL, so that it cannot hand over what it leads; otherwise by SIGTERM.
        """
        process = self.broker_process(index)
        if process is not None:
            process.stop(kill=kill)

    def start_broker(self, index: int = 0, wait: bool = True) -> ProcessIdentity:
        """Start ``brokers[index]`` by its properties file as it is now; one that runs is left alone.

        :param wait: return only when it answers and has registered itself.
        :raises EosError: it does not start.
        """
        broker = self.brokers[index]
        process = self.broker_process(index) or self._spawn_again(broker)
        if wait:
            wait_for_broker(broker.lab_client, process, broker.log)
        return process

    def stop_worker(self, index: int, kill: bool = False) -> None:
        """Stop the worker of ``connect_urls[index]``; nothing to do if it does not run.

        A unit is stopped as systemd stops it, so that it is not started anew. Killing ``worker_process(index)`` itself
        makes the unit come back.

        :param kill: by SIGKILL, so that it cannot leave its group; otherwise by SIGTERM.
        """
        worker = self.workers[index]
        process = self.worker_process(index)
        if isinstance(worker, MachineWorker):
            worker.stop(kill=kill)
        elif process is not None:
            process.stop(kill=kill)

    def start_worker(self, index: int, wait: bool = True) -> ProcessIdentity:
        """Start the worker of ``connect_urls[index]`` by its properties file as it is now; one that runs is left alone.

        :param wait: return only when it is healthy.
        :raises EosError: it does not start.
        """
        worker = self.workers[index]
        process = self.worker_process(index)
        if isinstance(worker, MachineWorker):
            worker.machine.power_on()
            process = worker.start()
        elif process is None:
            process = self._spawn_again(worker)
        if wait:
            wait_for_worker(worker.url, process, worker.log, worker.rest_settings)
        return process

    def add_worker(self, *, mode: Mode | None = None, listed: bool = True, wait: bool = True) -> int:
        """Start one more worker, a process of this machine.

        :param mode: its mode, the lab's own if not given.
        :param listed: whether the cluster file shall mention it.
        :returns: its index in ``connect_urls``.
        :raises EosError: it does not start.
        """
        with exclusive(self.root, _silent):
            record = LabRecord.read(self.root) or self._record
            index = len(record.worker_ports)
            self._save(
                replace(
                    record,
                    worker_ports=(*record.worker_ports, *free_ports(1)),
                    unlisted=record.unlisted if listed else (*record.unlisted, index),
                )
            )
            self._write_worker(self.workers[index], mode or self.options.mode)
            self._write_cluster_file()
            self.start_worker(index, wait=wait)
        return index

    def allow(self, acls: Iterable[Acl]) -> None:
        """Make ACLs; for a secured lab.

        :raises EosError: the broker refuses.
        """
        allow(self.kafka, acls)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; returns when it is known.

        :param config: the topic's own settings.
        :raises RefusedError: there is such a topic.
        :raises EosError: the broker refuses.
        """
        topics = Topics(self.kafka)
        if not topics.create(name, partitions, config or {}, replicas=-1):  # replicated as by default
            raise RefusedError(f"There is a topic {name} already.", remedy="Choose another name, or delete it.")

    # Files

    def _write_worker(self, worker: Worker, mode: Mode) -> None:
        properties = worker.properties(
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group_id,
            mode=mode,
            rebalance_delay_ms=self.options.rebalance_delay_ms,
            session_timeout_ms=self.options.session_timeout_ms,
            replication_factor=len(self.brokers),
        )
        properties |= self.options.worker_properties
        if isinstance(worker, MachineWorker):
            worker.prepare(properties)
        else:
            write_properties(worker.config, properties)

    def _write_cluster_file(self) -> None:
        if not self.workers:
            return
        listed = [w for index, w in enumerate(self.workers) if index not in self._record.unlisted]
        workers = [worker.description() for worker in listed]
        for file, principal in ((self.cluster_file, Principal.OPERATOR), (self.reader_file, Principal.READER)):
            if principal is Principal.READER and not self.security:
                continue
            content = {
                "bootstrap_servers": self.bootstrap_servers,
                **({"client": self.security.client(principal)} if self.security else {}),
                "group_id": self.group_id,
                **({"rest": self.security.rest()} if self.security else {}),
                "workers": workers,
            }
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=200)
            write_atomically(file, f"# Written by 'eos lab up' for the lab {self.name}.\n{text}")

    def _save(self, record: LabRecord) -> None:
        record.write(self.root)
        self._record = record

    def _require(self, wanted: LabOptions) -> None:
        differences = self._record.differences(wanted)
        if differences:
            raise RefusedError(
                f"The lab {self.name} in {self.root} is another one than is asked for: {'; '.join(differences)}.",
                remedy="Take it down first ('eos lab down'), or give the new one another --name.",
            )
