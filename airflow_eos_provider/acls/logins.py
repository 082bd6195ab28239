"""As whom Connect's clients log in: their effective properties, the principal that follows, and the same login for us.

``Worker.baseProducerConfigs``, ``baseConsumerConfigs`` and ``adminConfigs`` make a connector's clients. A producer or a
consumer gets what begins with ``producer.`` or ``consumer.`` in the worker's file, and nothing of the worker's own
login; an admin client gets that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.cluster.other_kafka import CLIENTS
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.java_client import from_java
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: The properties that say who logs in, and those that say who is trusted.
_LOGIN = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")
_TRUST = ("ssl.truststore.", "ssl.endpoint.identification.algorithm")


@dataclass(frozen=True, slots=True)
class Login:
    """How a client of Connect's logs in.

    :param principal: whom the brokers know it by; None if its properties do not say.
    :param settings: the same login for this package's clients; None if it cannot be used here.
    """

    principal: str | None
    settings: KafkaSettings | None = field(default=None, repr=False)
    problem: str = ""


def client_properties(
    client: str, worker: Mapping[str, str], connector: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """The properties with which Connect makes a client.

    :param client: ``worker``, ``producer``, ``consumer`` or ``admin``.
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
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    wanted = {"bootstrap.servers": bootstrap_servers, "security.protocol": protocol}
    if any(any(references(properties.get(name, ""))) for name in _LOGIN):
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
    try:
        found = from_java({name: properties[name] for name in _LOGIN if name in properties})
    except ConfigurationError:
        return None
    if not found.get("sasl.username") or "sasl.password" not in found:
        return None
    return {name: value for name, value in found.items() if name.startswith("sasl.")}


def _trusted(properties: Mapping[str, str], ca: str | None) -> dict[str, str] | None:
    """Whom to trust: whom this package does, for they are the same brokers; else whom Java does, if we can read it."""
    if ca is not None:
        return {"ssl.ca.location": ca}
    try:
        return from_java({name: value for name, value in properties.items() if name.startswith(_TRUST)})
    except ConfigurationError:
        return None
