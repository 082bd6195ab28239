"""A worker's ``service`` in a description, read: who owns its process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.connect.cluster.keys import only_known, shown, words_of
from airflow_eos_provider.connect.cluster.placement import OwnCommands, ServiceDescription, SystemdUnit
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

_OTHER_UNITS = (
    ".automount",
    ".device",
    ".mount",
    ".path",
    ".scope",
    ".slice",
    ".socket",
    ".swap",
    ".target",
    ".timer",
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
