"""The lab of the tests: as ``eos lab`` makes it, and with TLS, logins and ACLs, or workers on machines of their own.

Its brokers can be stopped, and workers added that its cluster file does not mention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from airflow_eos_provider.acls.rules import Rule, WorkerFacts, worker_rules
from airflow_eos_provider.acls.tool_rules import READING, ToolFacts, tool_rules
from airflow_eos_provider.changes.declared import VERBS
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.acl_values import Acl
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab import teardown
from airflow_eos_provider.lab.jars import jars
from airflow_eos_provider.lab.jars.java import java_program
from airflow_eos_provider.lab.lab import PORT_FREE_SECONDS, Lab, Running
from airflow_eos_provider.lab.lab_processes import exclusive, marker, own_processes
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.record import DEFAULT_WORKERS, LabOptions, LabRecord
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.servers.connect_worker import Worker
from airflow_eos_provider.lab.servers.part import Part
from airflow_eos_provider.lab.waiting import wait_for, wait_for_broker
from airflow_eos_provider.local_processes import ProcessIdentity, stop_side_by_side
from tests.lab.class_data import BROKER, WORKER, archive_options, ensure_archives, format_log_folder
from tests.lab.issuer import Issuer
from tests.lab.machine import Machine, is_machine, remove_control_groups
from tests.lab.machine_login import MachineLogin, grant
from tests.lab.machine_root import Root
from tests.lab.machine_worker import MachineWorker, stop_workers
from tests.lab.security import Principal, SecuredBroker, SecuredPorts, SecuredWorker, Security
from tests.sshd import public

_NOT_GIVEN = -(10**9)


@dataclass(frozen=True)
class TestLabOptions(LabOptions):
    """What kind of lab is wanted.

    :param workers: if not given, as many as machines.
    :param clock_offsets: by how many seconds the clocks of machines are ahead, by their names (``connect-1``).
    """

    __test__: ClassVar[bool] = False

    workers: int = _NOT_GIVEN
    secure: bool = False
    machines: int = 0
    clock_offsets: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.workers == _NOT_GIVEN:
            object.__setattr__(self, "workers", self.machines if self.machines > 0 else DEFAULT_WORKERS)
        super().__post_init__()

    @classmethod
    def of(cls, options: LabOptions) -> TestLabOptions:
        """These options as the lab of the tests takes them."""
        return (
            options if isinstance(options, cls) else cls(**{f.name: getattr(options, f.name) for f in fields(options)})
        )


@dataclass(frozen=True)
class TestLabRecord(LabRecord):
    """``lab.json``.

    :param unlisted: positions of workers that the cluster file does not mention.
    :param secured_ports: of the brokers of a secured lab: certificates, tokens, and the issuer's, the same for all.
    """

    __test__: ClassVar[bool] = False
    options_type = TestLabOptions

    unlisted: tuple[int, ...] = ()
    secured_ports: tuple[SecuredPorts, ...] = ()
    machine_ports: tuple[int, ...] = ()

    @classmethod
    def draw(cls, options: LabOptions) -> Self:
        wanted = TestLabOptions.of(options)
        record = super().draw(wanted)
        issuer, *ports = free_ports(1 + 2 * wanted.brokers) if wanted.secure else (0,)
        return replace(
            record,
            secured_ports=tuple(SecuredPorts(*both, issuer) for both in zip(ports[::2], ports[1::2], strict=True)),
            machine_ports=tuple(free_ports(wanted.machines)),
        )

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        return replace(
            super().of_json(content),
            unlisted=tuple(content.get("unlisted", ())),
            secured_ports=tuple(SecuredPorts(*ports) for ports in content.get("secured_ports", ())),
            machine_ports=tuple(content.get("machine_ports", ())),
        )


class TestLab(Lab):
    """One lab of the tests, up or not."""

    __test__ = False
    record_type = TestLabRecord
    _record: TestLabRecord
    options: TestLabOptions

    @classmethod
    def up(cls, options: LabOptions | None = None, progress: Callable[[str], None] = lambda line: None) -> Self:
        return super().up(TestLabOptions.of(options or TestLabOptions()), progress)

    @classmethod
    def stop_all(cls, root: Path, record: LabRecord | None, kill: bool) -> int:
        """Cut the machines' power, with which all that runs there ends, then stop the rest.

        :param kill: otherwise the machines' workers are stopped before.
        """
        machines = [process for process in own_processes(root, record.token if record else None) if is_machine(process)]
        if not kill:
            with ThreadPoolExecutor(max_workers=len(machines) or 1) as pool:
                list(pool.map(stop_workers, machines))
        stop_side_by_side(machines, kill=True)
        remove_control_groups(root)
        return len(machines) + super().stop_all(root, record, kill)

    def prepare(self) -> None:
        if self.security:
            self.security.make()
        if self.machines:
            self._prepare_machines()
        ensure_archives(marker(self.root, self._record.token))
        for broker in self.brokers:
            format_log_folder(broker)
        super().prepare()

    def _prepare_machines(self) -> None:
        """Make the machines' own files, and what logs in to them."""
        machines = self.machines
        login = MachineLogin(self.root)
        login.write(machines)
        self.data_dir.mkdir(exist_ok=True)
        self.data_dir.chmod(0o1777)  # connectors on the machines read and write there, too, as another user
        for machine in machines:
            machine.prepare(
                Root(
                    name=machine.name,
                    address=machine.host,
                    ssh_port=machine.ssh_port,
                    hosts={each.name: each.host for each in machines},
                    public_key=public(login.key),
                    host_key=(machine.host_key.read_text(encoding="ascii"), public(machine.host_key)),
                    clock_offset_seconds=self.options.clock_offsets.get(machine.name, 0),
                )
            )

    def _before_brokers(self, running: Running) -> None:
        for machine in self.machines:  # they boot beside the brokers
            _ = machine.starter or machine.boot()
        if (issuer := self.issuer) is not None:  # the brokers read its keys when they start
            process = running[issuer.name] or self._start(issuer)
            wait_for("The issuer of tokens", issuer.answers, process, issuer.log)

    def _before_workers(self) -> None:
        if self.security and not self._record.complete:
            self.security.enrol(self.kafka)
            self.allow(rule.acl for rule in self._first_rules())
        machines = self.machines
        for machine in machines:
            machine.power_on()
        if machines and not self._record.complete:
            workers = [worker for worker in self.cluster().workers if worker.machine is not None]
            grant({str(worker.machine): worker for worker in workers}, {each.name: each for each in machines})

    def _start(self, part: Part, port_seconds: float = 0.0) -> ProcessIdentity:
        """Start a part that does not run.

        :returns: its process; for a worker on a machine what keeps the machine on, since systemd may restart the unit.
        """
        if isinstance(part, MachineWorker):
            part.machine.power_on()
            return part.start()
        return super()._start(part, port_seconds)

    def _known(self) -> list[ProcessIdentity]:
        return [*super()._known(), *(machine.starter for machine in self.machines if machine.starter)]

    # Logins and rights

    @property
    def security(self) -> Security | None:
        """The logins and certificates of a secured lab, None of another."""
        return Security(self.root / "security") if self.options.secure else None

    @property
    def issuer(self) -> Issuer | None:
        """The issuer of tokens of a secured lab, None of another."""
        record = self._record
        if self.security is None:
            return None
        return Issuer(self.root, self.security, record.secured_ports[0].issuer, marker(self.root, record.token))

    @property
    def token_servers(self) -> str:
        """The brokers of a secured lab where they take tokens, comma-separated."""
        return ",".join(f"127.0.0.1:{ports.tokens}" for ports in self._record.secured_ports)

    @property
    def reader_file(self) -> Path:
        """The cluster file of a secured lab for a login that only reads."""
        return self.root / "eos-reader.yaml"

    def allow(self, acls: Iterable[Acl]) -> None:
        """Create ACLs."""
        with TransactionsClient(self.kafka) as client:
            client.create_acls(tuple(acls))

    def tool_facts(self, principal: Principal) -> ToolFacts:
        """What decides the rights of ``eos`` in a secured lab."""
        configs, offsets, status = (f"{self.group_id}-{kind}" for kind in ("configs", "offsets", "status"))
        return ToolFacts(
            group_id=self.group_id,
            principal=principal.acl_name,
            config_topic=configs,
            topics=[configs, offsets, status],
            offsets_topics=[offsets],
            id_prefixes=[f"{self.group_id}-"],
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

    def _first_rules(self) -> list[Rule]:
        """What the workers need in the lab's mode, and ``eos``; connectors get their rights as on any cluster."""
        operator, reader = (self.tool_facts(name) for name in (Principal.OPERATOR, Principal.READER))
        workers = worker_rules(self.worker_facts(self.options.mode))
        return [*workers, *tool_rules(operator, VERBS), *tool_rules(reader, READING)]

    # What it consists of

    def _make_broker(self, **given: Any) -> Broker:
        options = archive_options(BROKER, given["class_path"])
        if self.security is None:
            return Broker(**given, jvm_options=options)
        ports = self._record.secured_ports[given["number"] - 1]
        options = (*options, self.security.keys_option(ports))
        return SecuredBroker(**given, jvm_options=options, security=self.security, secured_ports=ports)

    def _make_worker(self, **given: Any) -> Worker:
        options = archive_options(WORKER, given["class_path"])
        if self.security is not None:
            return SecuredWorker(**given, jvm_options=(*options, self.security.login_option), security=self.security)
        if given["number"] <= len(self.machines):
            return MachineWorker(**given, jvm_options=options, machine=self.machines[given["number"] - 1])
        return Worker(**given, jvm_options=options)

    @property
    def machines(self) -> list[Machine]:
        """The machines on which the first workers run, in order."""
        record = self._record
        java = java_program().resolve().parent.parent
        bound = [str(jars.cache_folder().parent), f"rw:{self.data_dir}"]
        if not java.is_relative_to("/usr"):
            bound.append(str(java))
        return [
            Machine(folder=self.root, number=number, ssh_port=port, token=record.token, bound=tuple(bound))
            for number, port in enumerate(record.machine_ports, start=1)
        ]

    @property
    def _others(self) -> list[Part]:
        return [*([self.issuer] if self.issuer else []), *self.machines]

    def _cluster_files(self) -> dict[Path, dict[str, object]]:
        ((file, content),) = super()._cluster_files().items()
        listed = [worker for index, worker in enumerate(self.workers) if index not in self._record.unlisted]
        content["workers"] = [worker.description() for worker in listed]
        if self.security is None:
            return {file: content}
        content["rest"] = self.security.rest()
        return {
            name: {**content, "client": self.security.client(principal)}
            for name, principal in ((file, Principal.OPERATOR), (self.reader_file, Principal.READER))
        }

    def summary(self) -> dict[str, object]:
        found = super().summary()
        if (issuer := self.issuer) is not None:
            found["tokens"] = {"bootstrap_servers": self.token_servers, "issuer": issuer.address}
        if machines := self.machines:
            found["machines"] = [{"name": m.name, "address": m.host, "ssh_port": m.ssh_port} for m in machines]
            found["ssh_config"] = str(MachineLogin(self.root).config)
        return found

    # Single brokers and workers

    def broker_process(self, index: int = 0) -> ProcessIdentity | None:
        """The process of ``brokers[index]``, None if it does not run."""
        return self.brokers[index].process(self._record.token)

    def stop_broker(self, index: int = 0, kill: bool = False) -> None:
        """Stop ``brokers[index]``; nothing to do if it does not run."""
        process = self.broker_process(index)
        if process is not None:
            process.stop(kill=kill)

    def start_broker(self, index: int = 0, wait: bool = True) -> ProcessIdentity:
        """Start ``brokers[index]`` by its properties file as it is now; one that runs is left alone."""
        broker = self.brokers[index]
        process = self.broker_process(index) or self._start(broker, PORT_FREE_SECONDS)
        if wait:
            wait_for_broker(broker.lab_client, process, broker.log)
        return process

    def stop_worker(self, index: int, kill: bool = False) -> None:
        """Stop the worker of ``connect_urls[index]``; a unit is stopped by systemd, which then leaves it stopped.

        Killing ``worker_process(index)`` itself makes the unit come back.
        """
        worker = self.workers[index]
        if isinstance(worker, MachineWorker):
            worker.stop(kill=kill)
        else:
            super().stop_worker(index, kill)

    def add_worker(self, *, mode: Mode | None = None, listed: bool = True, wait: bool = True) -> int:
        """Start one more worker, a process of this machine.

        :param listed: whether the cluster file shall mention it.
        """
        with exclusive(self.root, lambda line: None):
            record = TestLabRecord.read(self.root) or self._record
            index = len(record.worker_ports)
            unlisted = record.unlisted if listed else (*record.unlisted, index)
            self._save(replace(record, worker_ports=(*record.worker_ports, *free_ports(1)), unlisted=unlisted))
            self._prepare_worker(self.workers[index], mode or self.options.mode)
            self._write_cluster_files()
            self.start_worker(index, wait=wait)
        return index


#: Take down a lab of the tests, whatever state it is in.
take_down = partial(teardown.take_down, stop=TestLab.stop_all)
