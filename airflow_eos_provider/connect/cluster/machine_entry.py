"""A worker's ``machine`` in a description, read: how the machine on which it runs is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.cluster.keys import local_path, name_of, only_known, seconds_of, shown
from airflow_eos_provider.connect.cluster.placement import (
    PRIVILEGES,
    MachineDescription,
    Privilege,
    SshConnection,
    SshConnections,
    SshLogin,
)
from airflow_eos_provider.errors import ConfigurationError

_KEYS = frozenset(
    {"ssh", "user", "port", "sudo", "key_file", "ssh_config", "known_hosts", "connect_seconds", "conn_id"}
)

#: Files with credentials, or with whom to trust, of the machine of ``eos`` or of Airflow's worker.
OF_THIS_MACHINE = ("key_file", "ssh_config", "known_hosts")

#: No connection may take longer to be made, seconds.
_LONGEST_CONNECT_SECONDS = 600.0


def machine_of(
    own: Any,
    default: Any,
    url_host: str,
    *,
    base: Path | None,
    ssh_connections: SshConnections | None,
    where: str,
) -> MachineDescription | None:
    """The machine of one worker.

    :param own: what its entry says; None if nothing. Each of its keys stands before that of ``default``.
    :returns: None for this machine.
    """
    in_defaults = _keys(default, "defaults.machine")
    in_entry = _keys(own, f"{where}machine")
    if own is None and default is None:
        return None
    if in_entry.get("ssh", in_defaults.get("ssh")) is False:
        return _this_machine(in_entry, in_defaults, f"{where}machine.")
    said = {**in_defaults, **in_entry}
    where = f"{where}machine." if own is not None else "defaults.machine."
    connection = _connection(said, base, ssh_connections, where)
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
    only_known(entry, _KEYS, where)
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


def _connection(
    said: Mapping[str, Any], base: Path | None, ssh_connections: SshConnections | None, where: str
) -> SshConnection | None:
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
    named = [key for key in OF_THIS_MACHINE if key in said]
    if named and base is None:
        raise ConfigurationError(
            f"{where}{named[0]} names a file with a login of this machine, or with whom it trusts, and is not taken "
            "from a connection.",
            remedy="Use conn_id, a connection of type ssh; or name the file in a cluster file on the Airflow workers, "
            "and that one as cluster_file.",
        )
