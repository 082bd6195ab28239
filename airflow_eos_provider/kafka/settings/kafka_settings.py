"""One settings mapping for both Kafka client libraries.

Users write librdkafka's property names, as the ``kafka`` connection of Airflow's own provider has them, and a few of
ours and Java's (docs/connect/security.md). Each library gets its own form when a client is created, so a property that
only one of them supports is refused only where the other is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings import kafka_python_settings, librdkafka_settings
from airflow_eos_provider.redaction import is_secret, remember

__all__ = ["KafkaSettings", "is_secret"]

#: What every client of librdkafka gets unless the user says otherwise. A new client waits up to half of the back-off
#: between its first connection and the next, for it makes only those that it needs: half of librdkafka's 100 ms would
#: be most of what a question costs. The back-off grows with each failure all the same.
_DEFAULTS = {"client.id": "airflow-eos-provider", "reconnect.backoff.ms": 20}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach one Kafka cluster.

    :param properties: librdkafka properties; ``bootstrap.servers`` is required.
    :raises ConfigurationError: ``bootstrap.servers`` is missing, or a value is a function.
    """

    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not str(self.properties.get("bootstrap.servers", "")).strip():
            raise ConfigurationError(
                "No bootstrap servers are given.", remedy="Set bootstrap_servers (host:port, comma-separated)."
            )
        for name, value in self.properties.items():
            if callable(value):  # settings travel to Spark's executors and into both libraries as text
                raise ConfigurationError(
                    f"The client property {name} is a function itself.",
                    expected="text; for oauth_cb the function's name, package.module.function",
                    remedy="Put the function into a module that every process can import, Spark's executors too.",
                )
            if value is None or isinstance(value, (dict, list)):
                raise ConfigurationError(
                    f"The client property {name} {'has no value' if value is None else 'is a structure'}.",
                    expected="text: '' for an empty one; or no such property",
                )
        text = {name: _text(value) for name, value in self.properties.items()}
        object.__setattr__(self, "properties", MappingProxyType(text))
        remember(self.properties)

    @classmethod
    def of(cls, bootstrap_servers: str, client: Mapping[str, object] | None = None) -> KafkaSettings:
        """Settings from an address list and further librdkafka properties."""
        return cls({**(client or {}), "bootstrap.servers": bootstrap_servers})  # type: ignore[dict-item]

    @property
    def bootstrap_servers(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def principal(self) -> str | None:
        """The principal in the brokers' ACLs, according to the settings; None if a certificate, a ticket or a token
        determines it."""
        protocol = self.properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol.startswith("SASL"):
            mechanism = self.properties.get("sasl.mechanism") or self.properties.get("sasl.mechanisms", "")
            named = mechanism.upper() == "PLAIN" or mechanism.upper().startswith("SCRAM-")
            return f"User:{self.properties['sasl.username']}" if named and "sasl.username" in self.properties else None
        has_certificate = any(name.startswith(("ssl.certificate", "ssl.keystore")) for name in self.properties)
        return None if protocol == "SSL" and has_certificate else "User:ANONYMOUS"

    @property
    def who(self) -> str:
        """The principal in words."""
        return self.principal or "this client's principal"

    @property
    def rights_remedy(self) -> str:
        """What to do where the brokers have let this client in, and refuse it what it asks for."""
        return f"Check the ACLs of {self.who}; docs/reference/acls.md has the rights that each command takes."

    def confluent(self, **extra: object) -> dict[str, object]:
        """A confluent-kafka configuration; ``extra`` uses underscores for dots (``group_id`` -> ``group.id``).

        :raises ConfigurationError: a store cannot be read, or whoever gives tokens refuses.
        :raises UnreachableError: no endpoint answers that could give a token.
        """
        configuration = {**_DEFAULTS, **librdkafka_settings.configuration(self.properties)}
        configuration.update({name.replace("_", "."): value for name, value in extra.items()})
        return configuration

    def kafka_python(self) -> dict[str, object]:
        """The same settings for kafka-python.

        :raises ConfigurationError: a property that decides about security has no counterpart there, or a file cannot be
            read.
        :raises UnreachableError: no endpoint answers that could give a token.
        """
        return kafka_python_settings.configuration(self.properties)

    def redacted(self) -> dict[str, str]:
        """The properties for display: values that may be secret are replaced."""
        return {name: "***" if is_secret(name) else value for name, value in sorted(self.properties.items())}

    def __repr__(self) -> str:
        return f"KafkaSettings({self.redacted()})"


def _text(value: object) -> str:
    """A value as librdkafka takes it: JSON's and YAML's truth values in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
