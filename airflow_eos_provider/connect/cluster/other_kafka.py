"""Kafka clusters besides the workers' own, in which source connectors may have their clients.

A client's addresses come from the connector's override (KIP-458); without one, from the producer, consumer or admin
settings in the worker's file; without these, from the worker's own (``Worker.baseProducerConfigs`` and its like).

Every user who may configure a connector can write such addresses, so no password or token is sent there, unless the
cluster description has them under ``other_kafka``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: The clients of a source connector: its producers, the consumer of its offsets, and the one that fences its producers.
CLIENTS = ("producer", "consumer", "admin")

#: By these a connector's clients use other addresses than its workers.
OVERRIDES = {client: f"{client}.override.bootstrap.servers" for client in CLIENTS}

Addresses = frozenset[str]

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def addresses_of(text: str) -> Addresses:
    """Addresses as Connect compares them: by text, in any order."""
    return frozenset(address.strip() for address in text.split(",") if address.strip())


class ClientAddresses:
    """Which addresses the clients of source connectors use, by the workers' files and the connectors' configurations.

    :param workers: the workers' properties, as far as they are known.
    :param bootstrap_servers: further addresses of the workers' Kafka cluster.
    """

    def __init__(self, workers: Iterable[Mapping[str, str]], bootstrap_servers: str) -> None:
        given = list(workers)
        of_workers = [each["bootstrap.servers"] for each in given if each.get("bootstrap.servers")]
        self._own = Addresses().union(*map(addresses_of, [*of_workers, bootstrap_servers]))
        self._defaults = {
            client: next((each[name] for each in given if each.get(name)), "")
            for client, name in ((client, f"{client}.bootstrap.servers") for client in CLIENTS)
        }

    def elsewhere(self, config: Mapping[str, str | None]) -> dict[str, str]:
        """By client the addresses of a connector that are not all known as its workers'."""
        given = {client: config.get(OVERRIDES[client]) or self._defaults[client] for client in CLIENTS}
        return {client: text for client, text in given.items() if text and not addresses_of(text) <= self._own}


class OtherKafka:
    """The Kafka clusters behind addresses that connectors name, each asked for its id at most once.

    :param kafka: the workers' Kafka cluster, whose client properties are used without the login.
    :param described: settings of clusters that are described. Those are used for addresses that are all in one of them.
    """

    def __init__(self, kafka: Session, described: Sequence[KafkaSettings] = ()) -> None:
        self._kafka = kafka
        self._described = described
        self._ids: dict[Addresses, str | EosError] = {}
        self._sessions: dict[Addresses, Session] = {}

    def session(self, text: str) -> Session:
        """The session of the cluster behind some addresses, kept until :meth:`close`."""
        addresses = addresses_of(text)
        if addresses not in self._sessions:
            self._sessions[addresses] = self._new(text)
        return self._sessions[addresses]

    def id_of(self, text: str) -> str:
        if any(references(text)):
            raise ConfigurationError("a config provider supplies the addresses")
        addresses = addresses_of(text)
        if addresses not in self._ids:
            try:
                self._ids[addresses] = _checked(self.session(text).cluster_id(), text)
            except EosError as error:
                self._ids[addresses] = error
        found = self._ids[addresses]
        if isinstance(found, EosError):
            raise found
        return found

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def remedy(self, text: str) -> str:
        """What to do if the id of the cluster behind some addresses is not found."""
        if any(references(text)):
            return f"write the addresses into {', '.join(OVERRIDES.values())} of the connector"
        if self.describes(text):
            return "check that these brokers run, and their entry under other_kafka in the cluster description"
        addresses = addresses_of(text)
        for each in self._described:
            if addresses & (known := addresses_of(each.bootstrap_servers)):
                missing = ", ".join(sorted(addresses - known))
                return (
                    f"add {missing} to the entry under other_kafka that has the other addresses, if they belong to it"
                )
        return (
            "if these brokers want a login, or another TLS than the workers' brokers, describe them under other_kafka "
            "in the cluster description (no login is sent to addresses that a connector names)"
        )

    def describes(self, text: str) -> bool:
        """Whether one entry of the description has all of some addresses."""
        return self._description(text) is not None

    def _new(self, text: str) -> Session:
        described = self._description(text)
        properties = _without_login(self._kafka.settings.properties) if described is None else described.properties
        return Session(KafkaSettings.of(text, properties))

    def _description(self, text: str) -> KafkaSettings | None:
        addresses = addresses_of(text)
        return next((each for each in self._described if addresses <= addresses_of(each.bootstrap_servers)), None)


def _checked(cluster_id: str, text: str) -> str:
    """A cluster id, if it is one: brokers of anybody may say anything."""
    if not _CLUSTER_ID.fullmatch(cluster_id or ""):
        raise RefusedError(f"The brokers at {text} report an invalid cluster id: {cluster_id!r}.")
    return cluster_id


def _without_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Client properties without password, token or certificate of this client; TLS stays."""
    kept = {name: value for name, value in properties.items() if not name.startswith("sasl.")}
    kept = {name: value for name, value in kept.items() if not name.startswith(("ssl.key", "ssl.certificate"))}
    protocol = kept.get("security.protocol", "")
    if protocol.upper().startswith("SASL_"):
        kept["security.protocol"] = protocol[len("SASL_") :]
    return kept
