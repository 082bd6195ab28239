"""Sudoers files for the workers' machines: exactly the commands that a roll runs there as another user."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import MachineDescription, OwnCommands, SystemdUnit
from airflow_eos_provider.data_text import visible
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.rollout.hosts.choose import service_of
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.properties_file import FileCommands, PropertiesFile
from airflow_eos_provider.rollout.hosts.machine.sudo import Command, Sudo, lines
from airflow_eos_provider.rollout.hosts.machine.worker_log import WorkerLog

#: Who owns the files of Connect's packages (Confluent's call it cp-kafka-connect).
_USUAL_OWNER = "kafka"

#: Who needs no sudo.
ROOT = "root"


@dataclass(frozen=True, slots=True)
class Grant:
    worker_id: str  #: the worker
    what_for: str  #: in words, what they do
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Section:
    what_for: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SudoersFile:
    """What one machine has to allow one login."""

    machine: str  #: the machine's name; empty for this one
    login: str  #: who logs in there
    sections: tuple[Section, ...]  #: lines by what they are for; empty if nothing goes through sudo there
    remarks: tuple[str, ...] = ()  #: what was assumed, or could not be granted

    def text(self) -> str:
        """The file, each line behind a word on what it is for."""
        where = self.machine or "this machine"
        parts = [_comment(f"{where}, login {self.login}: visudo -f /etc/sudoers.d/eos")]
        parts += [_comment(remark) for remark in self.remarks]
        if not self.sections:
            parts.append("# nothing goes through sudo")
        for section in self.sections:
            parts += [_comment(section.what_for), *section.lines]
        return "\n".join(parts) + "\n"

    def to_dict(self) -> dict[str, object]:
        return {
            "machine": self.machine or None,
            "login": self.login,
            "sections": [{"what_for": each.what_for, "lines": list(each.lines)} for each in self.sections],
            "remarks": list(self.remarks),
            "text": self.text(),
        }


def _comment(text: str) -> str:
    """A remark as one line: what a machine answers is quoted in some, and must not become a line of rights."""
    return f"# {visible(text)}"


def kind_of(worker: WorkerDescription) -> str:
    match worker.service:
        case SystemdUnit(unit=unit):
            return f"systemd unit {unit}"
        case OwnCommands():
            return "its supervisor's commands"
        case None:
            return "start command"


def needs_sudo(worker: WorkerDescription) -> bool:
    return worker.machine is not None and bool(worker.machine.sudo)


def grants_of(worker: WorkerDescription, machine: Machine) -> tuple[Grant, ...]:
    """What a roll of a worker runs through sudo, as its machine has its files now."""
    grants = []
    if worker.uses_sudo_for("file") and worker.config is not None:
        file = PropertiesFile(machine, PurePosixPath(worker.config), sudo=True)
        grants.append(Grant(worker.worker_id, f"read and replace {worker.config}", file.commands()))
    if worker.uses_sudo_for("log") and worker.log is not None:
        log = WorkerLog(machine, PurePosixPath(worker.log), sudo=True)
        grants.append(Grant(worker.worker_id, f"read its log {worker.log}", log.commands()))
    grants += _of_service(worker, machine)
    return tuple(grant for grant in grants if grant.commands)


def _of_service(worker: WorkerDescription, machine: Machine) -> list[Grant]:
    """Of these nothing is asked of the machine."""
    service = service_of(machine, worker)
    restart = tuple(command for command in service.commands if command.user)
    log = tuple(command for command in service.log_commands if command.user)
    return [
        Grant(worker.worker_id, f"restart it ({kind_of(worker)})", restart),
        Grant(worker.worker_id, f"read its log ({service.log})", log),
    ]


def sudoers_of(workers: Sequence[WorkerDescription]) -> tuple[SudoersFile, ...]:
    """A sudoers file for each machine and login of these workers, machines side by side."""
    groups: dict[MachineDescription, list[WorkerDescription]] = {}
    for worker in workers:
        if needs_sudo(worker) and worker.machine is not None:
            groups.setdefault(replace(worker.machine, sudo=frozenset()), []).append(worker)
    if not groups:
        return ()
    with ThreadPoolExecutor(max_workers=len(groups), thread_name_prefix="sudoers") as pool:
        return tuple(pool.map(file_of, groups, groups.values()))


def file_of(description: MachineDescription, workers: Sequence[WorkerDescription]) -> SudoersFile:
    """The sudoers file of one machine; of one that is not reached, by its description and what is usual."""
    machine = machine_of(description)
    sudo = Sudo(machine)
    remarks: list[str] = []
    grants, lines_of = grants_of, sudo.lines
    try:
        login = sudo.login
    except EosError as error:
        login = _login_of(description)
        grants, lines_of = _assumed_grants, partial(_assumed_lines, login)
        remarks += [
            f"not checked: {error.found}",
            f"assumed: the login is {login}, programs are in /usr/bin, files have no links and belong to "
            f"{_USUAL_OWNER}, which owns their folders, too",
        ]
        remarks += [
            f"{each.worker_id}: no lines for its log {each.log}: the owner of its folder is unknown"
            for each in workers
            if login != ROOT and each.uses_sudo_for("log") and each.log is not None
        ]
    sections: list[Section] = []
    for worker in workers if login != ROOT else ():
        try:
            for grant in grants(worker, machine):
                sections.append(Section(f"{grant.worker_id}: {grant.what_for}", lines_of(grant.commands)))
        except EosError as error:
            remedy = f" What to do: {error.remedy}" if error.remedy else ""
            remarks.append(f"{worker.worker_id}: no lines, since {error.found}{remedy}")
    return SudoersFile(machine.name, login, tuple(each for each in sections if each.lines), tuple(remarks))


def _login_of(description: MachineDescription) -> str:
    """Who would log in, by the description and the SSH configuration."""
    try:
        from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_options import route  # imports asyncssh, an extra

        return route(description)[-1].user
    except (ImportError, EosError):
        return description.login.user or getpass.getuser()


def _assumed_grants(worker: WorkerDescription, machine: Machine) -> tuple[Grant, ...]:
    grants = []
    if worker.uses_sudo_for("file") and worker.config is not None:
        resolving = Command(("readlink", "-v", "-f", "--", str(worker.config)), _USUAL_OWNER)
        own = FileCommands(PurePosixPath(worker.config), user=_USUAL_OWNER)
        commands = (resolving, own.look, own.read, *own.changing)
        grants.append(Grant(worker.worker_id, f"read and replace {worker.config}", commands))
    return (*grants, *_of_service(worker, machine))


def _assumed_lines(login: str, commands: Sequence[Command]) -> tuple[str, ...]:
    names = {command.words[0] for command in commands}
    return lines(login, commands, {name: f"/usr/bin/{name}" for name in names if "/" not in name})
