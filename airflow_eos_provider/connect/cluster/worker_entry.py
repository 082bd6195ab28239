"""A worker's entry in a description, read together with the defaults of all workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from airflow_eos_provider.connect.cluster.keys import far_path, local_path, only_known, scalar, shown, text_of, words_of
from airflow_eos_provider.connect.cluster.machine_entry import machine_of
from airflow_eos_provider.connect.cluster.placement import (
    MachineDescription,
    ServiceDescription,
    SshConnections,
    SystemdUnit,
)
from airflow_eos_provider.connect.cluster.service_entry import START_KEYS, refuse_later_kinds, service_of
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import remember

#: What defaults may say for every worker that does not say it itself.
DEFAULT_KEYS = frozenset({"machine", "service", "config", "log"})
_KEYS = DEFAULT_KEYS | {"url", "host", *START_KEYS}

#: The only value of ``host``, which older descriptions have: a process that nobody else owns.
_PROCESS = "process"


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
    machine = machine_of(
        entry.get("machine"),
        around.defaults.get("machine"),
        address.hostname or "",
        base=around.base,
        ssh_connections=around.ssh_connections,
        where=where,
    )
    log, is_journal = _log(said, where)
    of_service = _where(entry, "service", where)
    service, start = (None, flat) if flat else service_of(said.get("service"), journal=is_journal, where=of_service)
    of_start = where if flat else f"{of_service}."
    _require_unit_of_journal(service, is_journal, where)
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


def _where(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Where a key stands: in the worker's entry, or in the defaults."""
    return f"{where}{key}" if entry.get(key) is not None else f"defaults.{key}"


def _flat_start(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The keys of a start command that stand in the entry itself, as in older descriptions."""
    flat = {key: entry[key] for key in START_KEYS if entry.get(key) not in (None, [], {}, "")}
    host = text_of(entry, "host")
    if host and host != _PROCESS:
        raise ConfigurationError(
            f"{where}host is {host!r}.",
            expected="'process', or no such key: 'machine' says where the worker runs, 'service' who owns its process",
        )
    service = entry.get("service")
    is_start = isinstance(service, Mapping) and "start" in service
    beside = [*flat, *(["host"] if host and not is_start else [])]
    if service is not None and beside:
        raise ConfigurationError(
            f"{where.removesuffix('.')} says service and also {', '.join(beside)}.",
            expected="one of the two",
            remedy="A start command goes into service: {start: […], pid_file: …, cwd: …, env: {…}}.",
        )
    return flat or ({"start": None} if host and service is None else {})


def _log(said: Mapping[str, Any], where: str) -> tuple[Any, bool]:
    """What is said of a log file, and whether the log is a journal instead."""
    value = said.get("log")
    if not isinstance(value, Mapping):
        return value, False
    if dict(value) != {"journal": True}:
        raise ConfigurationError(f"{where}log is a mapping.", expected="a path, or {journal: true} for a systemd unit")
    return None, True


def _require_unit_of_journal(service: ServiceDescription | None, is_journal: bool, where: str) -> None:
    if is_journal and not isinstance(service, SystemdUnit):
        raise ConfigurationError(
            f"{where}log is systemd's journal, but the worker is no systemd unit.",
            expected="service: {systemd: UNIT}, or the path of a log file",
        )


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
