"""An Airflow connection of type ``ssh`` becomes the login on a worker's machine.

It is read as Airflow's own SSH provider defines it (``docs/connections/ssh.rst`` there), which need not be installed:
nothing of it is called. Host keys are checked always, so the extras that turn that off are refused.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.log import mask_secret

from airflow_eos_provider.connect.cluster.placement import SshConnection, SshLogin
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import remember

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONNECTION_TYPE = "ssh"

#: Extras that let a machine be who it likes, as Airflow's SSH hook has them.
_NO_CHECKS = ("no_host_key_check", "allow_host_key_change")

#: A line of a private key is masked by itself, for a log has it by itself; shorter ones say nothing.
_SHORTEST_KEY_LINE = 16


def ssh_connection(connection: Connection) -> SshConnection:
    """What a connection of type ``ssh`` says; its secrets are masked in Airflow's logs first."""
    conn_id = connection.conn_id
    if connection.conn_type != CONNECTION_TYPE:
        raise ConfigurationError(
            f"conn_id names {conn_id}, a connection of type {connection.conn_type!r}.",
            expected="a connection of type 'ssh', as of apache-airflow-providers-ssh",
        )
    extra = connection.extra_dejson
    password = (connection.password or "").strip() or None
    private_key, passphrase = (_text(extra, key, conn_id) for key in ("private_key", "private_key_passphrase"))
    _mask(password, private_key, passphrase)
    key_file = _text(extra, "key_file", conn_id)
    if key_file and private_key:
        raise ConfigurationError(
            f"The connection {conn_id} has both key_file and private_key.", expected="one of the two"
        )
    host_key = _host_key(_text(extra, "host_key", conn_id), conn_id)
    _require_host_keys(extra, host_key, conn_id)
    return SshConnection(
        host=(connection.host or "").strip(),
        login=SshLogin(
            user=connection.login or None,
            port=connection.port or None,
            password=password,
            private_key=private_key,
            passphrase=passphrase,
            key_file=_path(key_file, conn_id) if key_file else None,
            host_key=host_key,
        ),
        connect_seconds=_connect_seconds(extra, conn_id),
    )


def _text(extra: Mapping[str, Any], key: str, conn_id: str) -> str | None:
    value = extra.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{key} in the connection {conn_id} is a {type(value).__name__}.", expected="text")
    return value


def _path(key_file: str, conn_id: str) -> Path:
    try:
        return Path(key_file).expanduser()
    except RuntimeError:  # "~user" without such a user, or "~" where this one has no entry and HOME is not set
        raise ConfigurationError(
            f"The ~ in key_file of the connection {conn_id} cannot be resolved here: there is no home folder.",
            expected="an absolute path on the Airflow workers",
        ) from None


def _mask(*secrets: str | None) -> None:
    for secret in filter(None, secrets):
        remember({"password": secret})
        mask_secret(secret)
        for line in secret.splitlines():
            if len(line) >= _SHORTEST_KEY_LINE and not line.startswith("-----"):
                mask_secret(line)


def _require_host_keys(extra: Mapping[str, Any], host_key: str | None, conn_id: str) -> None:
    """Refuse what turns the check of host keys off: the machine that answers would be given a password, or would say
    what a worker's file holds. A pinned key is the stricter of the two, so it stands."""
    off = [key for key in _NO_CHECKS if str(extra.get(key, "")).strip().lower() == "true"]
    if off and host_key is None:
        raise ConfigurationError(
            f"The connection {conn_id} sets {' and '.join(off)}, and host keys are always checked here: another "
            "machine could answer in place of the worker's.",
            expected="the machine's key in ~/.ssh/known_hosts of the Airflow worker, or host_key in the connection",
            remedy="Take it from the machine itself (/etc/ssh/ssh_host_ed25519_key.pub), write it into the extra as "
            f"host_key, and remove {' and '.join(off)}.",
        )


def _host_key(text: str | None, conn_id: str) -> str | None:
    """``<type> <data>``; where the data stands alone, its type is read from it."""
    if text is None:
        return None
    try:
        data = text.split()[1 if len(text.split()) > 1 else 0]
        blob = base64.b64decode(data, validate=True)
        length = int.from_bytes(blob[:4], "big")
        kind = blob[4 : 4 + length].decode("ascii")
        if length != len(kind) or not kind or not kind.isprintable() or len(blob) <= 4 + length:
            raise ValueError
    except (IndexError, ValueError, binascii.Error):
        raise ConfigurationError(
            f"host_key in the connection {conn_id} is no public key.",
            expected="'ssh-ed25519 AAAA…', as /etc/ssh/ssh_host_ed25519_key.pub has it",
        ) from None
    return f"{kind} {data}"


def _connect_seconds(extra: Mapping[str, Any], conn_id: str) -> float | None:
    """``conn_timeout``, or ``timeout`` as older connections have it."""
    for key in ("conn_timeout", "timeout"):
        value = extra.get(key)
        if value is None or value == "":
            continue
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if isinstance(value, bool) or not 0 < seconds <= 600:
            raise ConfigurationError(
                f"{key} in the connection {conn_id} is no time to connect within.",
                expected="seconds, more than 0 and at most 600",
            )
        return seconds
    return None
