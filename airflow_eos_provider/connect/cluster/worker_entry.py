"""A worker's entry in a description, read together with the defaults of all workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from airflow_eos_provider.connect.cluster.keys import (
    far_path,
    local_path,
    name_of,
    only_known,
    scalar,
    seconds_of,
    shown,
    text_of,
    words_of,
)
from airflow_eos_provider.connect.cluster.placement import (
    PRIVILEGES,
    MachineDescription,
    OwnCommands,
    Privilege,
    ServiceDescription,
    SshConnection,
    SshConnections,
    SshLogin,
    SystemdUnit,
)
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import remember

#: What a start command consists of: in the entry itself, or together in its ``service``.
START_KEYS = ("start", "pid_file", "cwd", "env")

_COMMANDS = frozenset({"restart", "status"})

#: Words for what the first versions of this package do not roll.
_NOT_YET = {"kubernetes": "pods of Kubernetes", "strimzi": "a KafkaConnect resource of Strimzi"}

_SYNTAX = "{systemd: UNIT}, {command: {restart: […], status: […]}} or {start: […], pid_file: …}"

#: As systemd.unit(5) has it, without what systemctl takes for a pattern.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?")
_UNIT_LENGTH = 255

_OTHER_KINDS = "automount device mount path scope slice socket swap target timer"
_OTHER_UNITS = tuple(f".{kind}" for kind in _OTHER_KINDS.split())

_MACHINE_KEYS = frozenset(
    {"ssh", "user", "port", "sudo", "key_file", "ssh_config", "known_hosts", "connect_seconds", "conn_id"}
)

#: Files with credentials, or with whom to trust, of the machine of ``eos`` or of Airflow's worker.
_OF_THIS_MACHINE = ("key_file", "ssh_config", "known_hosts")

#: No connection may take longer to be made, seconds.
_LONGEST_CONNECT_SECONDS = 600.0

#: What defaults may say for every worker that does not say it itself.
DEFAULT_KEYS = frozenset({"machine", "service", "config", "log"})
_KEYS = DEFAULT_KEYS | {"url", *START_KEYS}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the entries of one description have in common.

    :param base: folder that relative paths of this machine start from; None where a connection describes the cluster.
    :param ssh_connections: looks an Airflow connection of type ``ssh`` up; None outside of Airflow.
    """

    defaults: Mapping[str, Any]
    base: Path | None = None
    ssh_connections: SshConnections | None = None


def defaults_of(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    value = mapping.get("defaults")
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"defaults is {shown(value)}.", expected="{machine: …, service: …, config: …, log: …}")
    refuse_later_kinds(value, "defaults")
    only_known(value, DEFAULT_KEYS, "defaults")
    return {key: inner for key, inner in value.items() if inner is not None}


def worker_of(entry: Any, number: int, around: Surroundings) -> WorkerDescription:
    where = f"workers[{number}]."
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"workers[{number}] is not a mapping.", expected="{url: …, config: …, …}")
    refuse_later_kinds(entry, f"workers[{number}]")
    only_known(entry, _KEYS, f"workers[{number}]")
    url, address = _address(entry, where)
    flat = _flat_start(entry, where)
    said = {**around.defaults, **{key: value for key, value in entry.items() if value is not None}}
    machine = machine_of(entry.get("machine"), address.hostname or "", around, where)
    log, is_journal = _log(said, where)
    of_service = f"{where}service" if entry.get("service") is not None else "defaults.service"
    service, start = (None, flat) if flat else service_of(said.get("service"), journal=is_journal, where=of_service)
    of_start = where if flat else f"{of_service}."
    if is_journal and not isinstance(service, SystemdUnit):
        raise ConfigurationError(
            f"{where}log is systemd's journal, but the worker is no systemd unit.",
            expected="service: {systemd: UNIT}, or the path of a log file",
        )
    paths = _Paths(machine, around.base)
    return WorkerDescription(
        url=url,
        config=paths.read(said, "config", where),
        log=paths.read({"log": log}, "log", where),
        pid_file=paths.read(start, "pid_file", of_start),
        start=_start(start, of_start),
        cwd=paths.read(start, "cwd", of_start),
        env=_env(start, of_start, is_far=paths.is_far),
        machine=_with_a_meaning(machine, service),
        service=service,
    )


@dataclass(frozen=True, slots=True)
class _Paths:
    machine: MachineDescription | None
    base: Path | None

    @property
    def is_far(self) -> bool:
        return self.machine is not None and not self.machine.is_this_one

    def read(self, mapping: Mapping[str, Any], key: str, where: str) -> Path | None:
        if self.machine is not None and self.is_far:
            return far_path(mapping, key, str(self.machine), where)
        return local_path(mapping, key, self.base, where)


def _address(entry: Mapping[str, Any], where: str) -> tuple[str, SplitResult]:
    url = text_of(entry, "url", required=True, where=where)
    expected = "http://host:port or https://host:port, without user or password"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (raises for what is none)
    except ValueError as error:
        raise ConfigurationError(f"{where}url does not name a REST address ({error}).", expected=expected) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        named = parts.netloc.rpartition("@")[2] or "no host"
        raise ConfigurationError(f"{where}url does not name a REST address ({named}).", expected=expected)
    return url.rstrip("/"), parts


def _flat_start(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The keys of a start command that are in the entry itself."""
    flat = {key: entry[key] for key in START_KEYS if entry.get(key) not in (None, [], {}, "")}
    if flat and entry.get("service") is not None:
        raise ConfigurationError(
            f"{where.removesuffix('.')} says service and also {', '.join(flat)}.",
            expected="one of the two",
            remedy="A start command goes into service: {start: […], pid_file: …, cwd: …, env: {…}}.",
        )
    return flat


def _log(said: Mapping[str, Any], where: str) -> tuple[Any, bool]:
    """What is said of a log file, and whether the log is a journal instead."""
    value = said.get("log")
    if not isinstance(value, Mapping):
        return value, False
    if dict(value) != {"journal": True}:
        raise ConfigurationError(f"{where}log is a mapping.", expected="a path, or {journal: true} for a systemd unit")
    return None, True


def _start(start: Mapping[str, Any], where: str) -> tuple[str, ...]:
    words = words_of(start, "start", where)
    remember({str(number): word for number, word in enumerate(words)})  # a start command may hold -D…password=…
    return words


def _env(start: Mapping[str, Any], where: str, *, is_far: bool) -> Mapping[str, str]:
    env = start.get("env") or {}
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"{where}env is not a mapping.", expected="{NAME: value, …}")
    remember(env)
    for name, value in env.items():
        text = scalar(value)
        if not isinstance(name, str) or not name or "=" in name or set("\n\r\0") & set(name):
            raise ConfigurationError(f"{where}env has the name {shown(name)}.", expected="names of variables")
        if isinstance(value, (list, dict)) or "\0" in text:
            raise ConfigurationError(f"{where}env.{name} is not text.", expected="{NAME: value, …}")
        if is_far and "\n" in text:
            raise ConfigurationError(
                f"{where}env.{name} has more than one line, which is not handed on to another machine.",
                remedy="Name a file there, or set the variable in the start script.",
            )
    return {name: scalar(value) for name, value in env.items()}


def _with_a_meaning(
    machine: MachineDescription | None, service: ServiceDescription | None
) -> MachineDescription | None:
    """On this machine a process that nobody else owns is restarted by the user of ``eos``, without sudo."""
    return None if machine is not None and machine.is_this_one and service is None else machine


def machine_of(own: Any, url_host: str, around: Surroundings, where: str) -> MachineDescription | None:
    """The machine of one worker; None for this one.

    :param own: what its entry says; None if nothing. Each of its keys stands before that of the defaults.
    """
    default, base = around.defaults.get("machine"), around.base
    in_defaults = _keys(default, "defaults.machine")
    in_entry = _keys(own, f"{where}machine")
    if own is None and default is None:
        return None
    if in_entry.get("ssh", in_defaults.get("ssh")) is False:
        return _this_machine(in_entry, in_defaults, f"{where}machine.")
    said = {**in_defaults, **in_entry}
    where = f"{where}machine." if own is not None else "defaults.machine."
    connection = _connection(said, around.ssh_connections, where)
    # The host of a connection that stands in the defaults is that of one machine, and not of every worker's.
    host = connection.host if connection and in_entry.get("conn_id") else ""
    _no_files_of_this_machine(said, base, where)
    connect_seconds = seconds_of(said, "connect_seconds", where, _LONGEST_CONNECT_SECONDS) or (
        connection.connect_seconds if connection else None
    )
    return MachineDescription(
        ssh=_ssh_name(said, where) or host or url_host,
        login=_login(said, connection.login if connection else SshLogin(), base, where),
        sudo=_sudo(said, where),
        ssh_config=local_path(said, "ssh_config", base, where),
        known_hosts=local_path(said, "known_hosts", base, where),
        connect_seconds=connect_seconds or 10.0,
    )


def _keys(entry: Any, where: str) -> dict[str, Any]:
    """Its keys; the short form ``machine: connect-1`` is its name."""
    if entry is None:
        return {}
    if isinstance(entry, str) and entry.strip():
        return {"ssh": entry}
    if not isinstance(entry, Mapping):
        raise ConfigurationError(
            f"{where} is {shown(entry)}.",
            expected="{ssh: connect-1, user: …, sudo: true}, or its SSH name alone; {ssh: false} for this machine",
        )
    only_known(entry, _MACHINE_KEYS, where)
    return {key: value for key, value in entry.items() if value is not None}


def _this_machine(in_entry: Mapping[str, Any], in_defaults: Mapping[str, Any], where: str) -> MachineDescription | None:
    """The machine of ``eos`` itself, where only ``sudo`` has a meaning; what defaults say of a login is for others."""
    needless = sorted(in_entry.keys() - {"ssh", "sudo"})
    if needless and in_entry.get("ssh") is False:
        raise ConfigurationError(
            f"{where}ssh is false, so the worker is on this machine, and {', '.join(needless)} has no meaning.",
            remedy="Leave it out, or name the machine: ssh: connect-1.",
        )
    if needless:
        raise ConfigurationError(
            f"{where}{needless[0]} is given, but by defaults.machine.ssh the worker is on this machine.",
            remedy=f"Name the machine in the worker's own entry ({where}ssh).",
        )
    sudo = _sudo({**in_defaults, **in_entry}, where)
    return MachineDescription(ssh="", sudo=sudo) if sudo else None


def _ssh_name(said: Mapping[str, Any], where: str) -> str:
    expected = "a host, an address or a name of your SSH configuration; false for this machine"
    name = name_of(said, "ssh", where, expected)
    if "@" in name or "/" in name:
        raise ConfigurationError(f"{where}ssh is {shown(name)}.", expected=f"{expected}; the user goes into 'user'")
    return name


def _login(said: Mapping[str, Any], login: SshLogin, base: Path | None, where: str) -> SshLogin:
    """The login of a connection, with what the description says itself before it."""
    user = name_of(said, "user", where, "the name of a user")
    port = said.get("port")
    if port is not None and (not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536):
        raise ConfigurationError(f"{where}port is {shown(port)}.", expected="a number from 1 to 65535")
    key_file = local_path(said, "key_file", base, where)
    if key_file is not None:
        login = replace(login, key_file=key_file, private_key=None)
    return replace(login, user=user or login.user, port=port or login.port)


def _sudo(said: Mapping[str, Any], where: str) -> frozenset[Privilege]:
    value = said.get("sudo", False)
    if isinstance(value, bool):
        return frozenset(PRIVILEGES) if value else frozenset()
    if not isinstance(value, list) or not all(isinstance(each, str) and each in PRIVILEGES for each in value):
        raise ConfigurationError(
            f"{where}sudo is {shown(value)}.", expected=f"true, false, or a list of {', '.join(PRIVILEGES)}"
        )
    return frozenset(each for each in PRIVILEGES if each in value)


def _connection(said: Mapping[str, Any], ssh_connections: SshConnections | None, where: str) -> SshConnection | None:
    conn_id = name_of(said, "conn_id", where, "the name of an Airflow connection of type ssh")
    if not conn_id:
        return None
    if ssh_connections is None:
        raise ConfigurationError(
            f"{where}conn_id names {conn_id}, an Airflow connection, and these are known in Airflow only.",
            expected="ssh, user, key_file and so on, where eos runs outside of Airflow",
            remedy="Write the login into the cluster file or into ~/.ssh/config; or run the DAG, with a connection "
            "that names this file as cluster_file.",
        )
    return ssh_connections(conn_id)


def _no_files_of_this_machine(said: Mapping[str, Any], base: Path | None, where: str) -> None:
    """Refuse that a connection's own description chooses among the logins that this machine has."""
    named = [key for key in _OF_THIS_MACHINE if key in said]
    if named and base is None:
        raise ConfigurationError(
            f"{where}{named[0]} names a file with a login of this machine, or with whom it trusts, and is not taken "
            "from a connection.",
            remedy="Use conn_id, a connection of type ssh; or name the file in a cluster file on the Airflow workers, "
            "and that one as cluster_file.",
        )


def service_of(entry: Any, *, journal: bool, where: str) -> tuple[ServiceDescription | None, Mapping[str, Any]]:
    """Who owns a worker's process.

    :returns: the service, None for nobody; and of a start command the keys of :data:`START_KEYS`.
    """
    if entry is None:
        return None, {}
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{where} is {shown(entry)}.", expected=_SYNTAX)
    refuse_later_kinds(entry, where)
    only_known(entry, {"systemd", "command", *START_KEYS}, where)
    said = {key: value for key, value in entry.items() if value is not None}
    kinds = sorted(said.keys() & {"systemd", "command"}) + (["start"] if said.keys() & set(START_KEYS) else [])
    if len(kinds) != 1:
        found = f"says {' and '.join(kinds)}" if kinds else "is empty"
        raise ConfigurationError(f"{where} {found}.", expected=f"one of {_SYNTAX}")
    if "systemd" in said:
        return SystemdUnit(unit_name(said["systemd"], f"{where}.systemd"), journal), {}
    if "command" in said:
        return _commands(said["command"], f"{where}.command"), {}
    if not said.get("start"):
        raise ConfigurationError(f"{where}.start is missing.", expected="the words of the command that starts it")
    return None, said


def refuse_later_kinds(entry: Mapping[str, Any], where: str) -> None:
    """Refuse what is recognised and not rolled by this version."""
    for key, meaning in _NOT_YET.items():
        if entry.get(key) is not None:
            raise ConfigurationError(
                f"{where} says {key}: this version does not roll {meaning}.",
                expected="workers that are processes of a machine: machine, service and config",
                remedy="List each worker by its url alone: 'eos status', 'eos preflight', offsets and transactions "
                "work with that. Its mode is set where its configuration is kept.",
            )


def unit_name(value: Any, where: str) -> str:
    expected = "the name of one service unit, such as kafka-connect or kafka-connect@1.service"
    if not isinstance(value, str) or not _UNIT.fullmatch(value) or len(value) + len(".service") > _UNIT_LENGTH:
        raise ConfigurationError(f"{where} is {shown(value)}.", expected=expected)
    if value.endswith(_OTHER_UNITS):
        raise ConfigurationError(f"{where} is {shown(value)}, a unit of another kind.", expected=expected)
    if value.removesuffix(".service").endswith("@") or value == ".service":
        raise ConfigurationError(f"{where} is {shown(value)}, a template.", expected=expected)
    return value if value.endswith(".service") else f"{value}.service"


def _commands(entry: Any, where: str) -> OwnCommands:
    expected = "{restart: [supervisorctl, restart, connect-1], status: [supervisorctl, pid, connect-1]}"
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{where} is {shown(entry)}.", expected=expected)
    only_known(entry, _COMMANDS, where)
    restart, status = (words_of(entry, key, f"{where}.") for key in ("restart", "status"))
    for key, words in (("restart", restart), ("status", status)):
        if not words:
            raise ConfigurationError(f"{where}.{key} is missing.", expected=expected)
        remember({str(number): word for number, word in enumerate(words)})
    return OwnCommands(restart, status)
