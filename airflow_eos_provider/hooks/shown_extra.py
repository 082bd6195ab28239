"""Finds what a connection's extra would show, and what it would make a machine run.

Airflow hides a part of an extra by the *name* of its key, whole structures under such a name included
(``[core] sensitive_var_conn_names`` adds names). ``sasl.jaas.config``, ``ssl.key.pem`` and a password inside
``KAFKA_OPTS`` have no such name, so they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_eos_provider.redaction import holds_secret, is_secret, secrets_of

#: Airflow hides what is under a name with one of these in it: those of its ``DEFAULT_SENSITIVE_FIELDS`` that a
#: Kafka client's or a worker's setting can have. A test compares them with the Airflow that is installed.
HIDDEN_BY_AIRFLOW = (
    "access_token",
    "api_key",
    "apikey",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "secret",
    "token",
)

#: Name of the option in the section ``[eos]``.
HOST_COMMANDS_OPTION = "allow_host_commands_in_connection"

#: Name of the option in the section ``[eos]`` with the folders whose files a connection may name, and its default.
FILES_OPTION = "connection_files_folders"
DEFAULT_FILES_FOLDER = "/etc/eos"

#: Keys of ``rest`` that name a file with a login.
_FILES_OF_REST = ("client_certificate", "client_key")

#: Client properties that name a file end with these; whom to trust is no secret.
_FILES_OF_CLIENT = (".location", ".file", ".keytab")
_TRUST = frozenset({"https.ca.location", "ssl.ca.location", "ssl.crl.location", "ssl.truststore.location"})

#: Properties by which librdkafka loads a library or runs a command of the user's choice.
_COMMANDS_OF_CLIENT = frozenset({"plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd"})

#: All that an entry of a worker may say where the rest is not allowed: where it answers.
_HARMLESS = frozenset({"url"})


def shown_in_clear(extra: Mapping[str, Any], *, also_hidden: str = "") -> tuple[str, ...]:
    """Where in an extra a secret is under a name that Airflow does not hide, such as ``client.sasl.jaas.config``."""
    names = (*HIDDEN_BY_AIRFLOW, *(name.strip().lower() for name in also_hidden.split(",") if name.strip()))
    return tuple(_shown(extra, "", names))


def host_commands_in(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of worker entries and client properties that make a machine run, write or stop something, by name."""
    entries = [entry for entry in extra.get("workers") or () if isinstance(entry, Mapping)]
    found = {str(key) for entry in entries for key in entry if key not in _HARMLESS}
    defaults = extra.get("defaults")
    found |= {str(key) for key in defaults} if isinstance(defaults, Mapping) else set()
    others = [entry for entry in extra.get("other_kafka") or () if isinstance(entry, Mapping)]
    for holder in (extra, *others):
        for key in ("client", "client_secrets"):
            found |= commands_in_client(holder.get(key) or {})
    return tuple(sorted(found))


def files_in(extra: Mapping[str, Any]) -> dict[str, str]:
    """The files that an extra names, by key: the cluster file, and files with a login."""
    found = {"cluster_file": extra.get("cluster_file")}
    rest = extra.get("rest") or {}
    found |= {f"rest.{key}": rest.get(key) for key in _FILES_OF_REST}
    others = [entry for entry in extra.get("other_kafka") or () if isinstance(entry, Mapping)]
    for holder in (extra, *others):
        for key in ("client", "client_secrets"):
            found |= {f"{key}.{name}": value for name, value in (holder.get(key) or {}).items() if _is_file(str(name))}
    return {key: str(value) for key, value in found.items() if value}


def _is_file(name: str) -> bool:
    """Whether a client property names a file with a login."""
    return name.endswith(_FILES_OF_CLIENT) and name not in _TRUST


def commands_in_client(properties: Mapping[str, Any]) -> frozenset[str]:
    """The client properties that make a machine run something."""
    return _COMMANDS_OF_CLIENT & set(properties)


def _shown(value: Any, path: str, hidden: tuple[str, ...]) -> Iterator[str]:
    for inner_path, name, inner in _entries(value, path):
        if _hides(name, hidden):
            yield from _numbers(inner, inner_path)
        elif isinstance(inner, Mapping | list):
            yield from _shown(inner, inner_path, hidden)
        elif _is_secret_value(name, inner):
            yield inner_path


def _entries(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Path, name and value of everything right below a structure; what is in a list has no name."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield (f"{path}.{name}" if path else str(name)), str(name), inner
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield f"{path}[{number}]", "", inner


def _numbers(value: Any, path: str) -> Iterator[str]:
    """Airflow hides text only: a password of digits without quotes is shown under whatever name."""
    if _is_number(value):
        yield path
    for inner_path, _, inner in _entries(value, path):
        yield from _numbers(inner, inner_path)


def _is_secret_value(name: str, value: Any) -> bool:
    if is_secret(name) and (_is_number(value) or secrets_of({name: value})):
        return True
    return isinstance(value, str) and holds_secret(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hides(name: str, hidden: tuple[str, ...]) -> bool:
    """As Airflow's ``should_hide_value_for_key`` compares."""
    plain = re.sub(r"\W+", "_", name.strip().lower())
    return any(word in plain for word in hidden)
