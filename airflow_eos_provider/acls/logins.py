"""As whom Connect's clients log in: their effective properties, the principal that follows, and the same login for us.

``Worker.baseProducerConfigs``, ``baseConsumerConfigs`` and ``adminConfigs`` make a connector's clients. A producer or a
consumer gets what begins with ``producer.`` or ``consumer.`` in the worker's file, and nothing of the worker's own
login; an admin client gets that too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.other_kafka import CLIENTS
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.config import KafkaSettings

#: Login modules whose user name is the principal.
_NAMED = re.compile(r"\.(Plain|Scram)LoginModule\b")
_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')

_PEM = "PEM"


@dataclass(frozen=True, slots=True)
class Login:
    """How a client of Connect's logs in.

    :param principal: whom the brokers know it by; None if its properties do not say.
    :param settings: the same login for this package's clients; None if it cannot be used here.
    :param problem: why there is no principal, or no settings.
    """

    principal: str | None
    settings: KafkaSettings | None = field(default=None, repr=False)
    problem: str = ""


def client_properties(
    client: str, worker: Mapping[str, str], connector: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """The properties with which Connect makes a client.

    :param client: ``worker``, ``producer``, ``consumer`` or ``admin``.
    :param worker: the worker's file.
    :param connector: its configuration; None for a client of the worker.
    """
    if client == "worker":
        return dict(worker)
    own = f"{client}."
    found = {"bootstrap.servers": worker.get("bootstrap.servers", "")}
    if client == "admin":
        others = tuple(f"{each}." for each in CLIENTS)
        found |= {name: value for name, value in worker.items() if not name.startswith(others)}
    found |= {name.removeprefix(own): value for name, value in worker.items() if name.startswith(own)}
    override = f"{client}.override."
    for name, value in (connector or {}).items():
        if name.startswith(override) and value is not None:
            found[name.removeprefix(override)] = value
    return found


def login_of(properties: Mapping[str, str], bootstrap_servers: str, ca: str | None = None) -> Login:
    """As whom a Java client with these properties logs in.

    :param bootstrap_servers: brokers that the login may be sent to: the worker's own, never those of a connector.
    :param ca: file of the authorities that this package trusts, for a trust store that only Java reads.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    wanted = {"bootstrap.servers": bootstrap_servers, "security.protocol": protocol}
    relevant = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")
    if any(any(references(properties.get(name, ""))) for name in relevant):
        return Login(None, problem="a config provider supplies its login")
    if protocol.startswith("SASL_"):
        said = _sasl(properties)
        if said is None:
            return Login(None, problem=f"its login by {properties.get('sasl.mechanism', 'GSSAPI')} names no user")
        wanted |= said
    elif protocol == "SSL" and any(name.startswith("ssl.keystore.") for name in properties):
        return Login(None, problem="its certificate says who it is")
    principal = f"User:{wanted['sasl.username']}" if "sasl.username" in wanted else "User:ANONYMOUS"
    if protocol.endswith("SSL"):
        trusted = _trusted(properties, ca)
        if trusted is None:
            return Login(principal, problem="its trust store is readable by Java only")
        wanted |= trusted
    try:
        return Login(principal, KafkaSettings(wanted))
    except ConfigurationError as error:
        return Login(principal, problem=error.found)


def _sasl(properties: Mapping[str, str]) -> dict[str, str] | None:
    """The mechanism, the user and the password; None if the user's name is not the principal."""
    jaas = properties.get("sasl.jaas.config", "")
    options = {name: quoted or bare for name, quoted, bare in _OPTION.findall(jaas)}
    if not _NAMED.search(jaas) or "username" not in options or "password" not in options:
        return None
    plain = {name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()}
    mechanism = properties.get("sasl.mechanism", "").strip()
    return {"sasl.mechanism": mechanism, "sasl.username": plain["username"], "sasl.password": plain["password"]}


def _trusted(properties: Mapping[str, str], ca: str | None) -> dict[str, str] | None:
    location = properties.get("ssl.truststore.location", "")
    if location and properties.get("ssl.truststore.type", "").strip().upper() == _PEM:
        return {"ssl.ca.location": location}
    if ca is not None:
        return {"ssl.ca.location": ca}
    return None if location or "ssl.truststore.certificates" in properties else {}
