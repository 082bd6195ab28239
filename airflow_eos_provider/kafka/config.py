"""One settings mapping for both Kafka client libraries.

Users write librdkafka's property names, as the ``kafka`` connection of Airflow's own provider has them. confluent-kafka
takes them as they are; for kafka-python they are translated here, and a name that has no translation is refused rather
than dropped, because a dropped security setting changes what is connected to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import is_secret, remember

__all__ = ["KafkaSettings", "is_secret"]

#: librdkafka name -> kafka-python name.
_KAFKA_PYTHON_NAMES = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
}

#: Settings of librdkafka alone, without a counterpart that control messages would need.
_LIBRDKAFKA_ONLY = frozenset(
    {"debug", "log_level", "statistics.interval.ms", "socket.keepalive.enable", "broker.address.family", "acks"}
)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach one Kafka cluster.

    :param properties: librdkafka properties; ``bootstrap.servers`` is required.
    :raises ConfigurationError: ``bootstrap.servers`` is missing.
    """

    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not str(self.properties.get("bootstrap.servers", "")).strip():
            raise ConfigurationError(
                "No bootstrap servers are given.", remedy="Set bootstrap_servers (host:port, comma-separated)."
            )
        object.__setattr__(
            self, "properties", MappingProxyType({name: str(value) for name, value in self.properties.items()})
        )
        remember(self.properties)

    @classmethod
    def of(cls, bootstrap_servers: str, client: Mapping[str, object] | None = None) -> KafkaSettings:
        """Settings from an address list and further librdkafka properties."""
        return cls({**{k: str(v) for k, v in (client or {}).items()}, "bootstrap.servers": bootstrap_servers})

    @property
    def bootstrap_servers(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def principal(self) -> str | None:
        """Whom the brokers' ACLs know this client by, as far as its settings say; None where a certificate, a ticket or
        a token says it."""
        protocol = self.properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol.startswith("SASL"):
            mechanism = self.properties.get("sasl.mechanism") or self.properties.get("sasl.mechanisms", "")
            named = mechanism.upper() == "PLAIN" or mechanism.upper().startswith("SCRAM-")
            return f"User:{self.properties['sasl.username']}" if named and "sasl.username" in self.properties else None
        has_certificate = any(name.startswith(("ssl.certificate", "ssl.keystore")) for name in self.properties)
        return None if protocol == "SSL" and has_certificate else "User:ANONYMOUS"

    def confluent(self, **extra: object) -> dict[str, object]:
        """A confluent-kafka configuration; ``extra`` uses underscores for dots (``group_id`` -> ``group.id``)."""
        configuration: dict[str, object] = {"client.id": "airflow-eos-provider", **self.properties}
        configuration.update({name.replace("_", "."): value for name, value in extra.items()})
        return configuration

    def kafka_python(self) -> dict[str, object]:
        """The same settings for kafka-python.

        :raises ConfigurationError: a property has no counterpart there.
        """
        configuration: dict[str, object] = {"client_id": "airflow-eos-provider"}
        for name, value in self.properties.items():
            if name in _LIBRDKAFKA_ONLY:
                continue
            target = _KAFKA_PYTHON_NAMES.get(name)
            if target is None:
                raise ConfigurationError(
                    f"The client property {name!r} cannot be used for control messages: kafka-python lacks it.",
                    expected=f"one of {', '.join(sorted(_KAFKA_PYTHON_NAMES))}",
                    remedy="Remove the property, or say the same with one of these.",
                )
            configuration[target] = value
        configuration["bootstrap_servers"] = self.bootstrap_servers.split(",")
        if "security_protocol" in configuration:
            configuration["security_protocol"] = str(configuration["security_protocol"]).upper()
        if "ssl_check_hostname" in configuration:
            configuration["ssl_check_hostname"] = configuration["ssl_check_hostname"] not in ("none", "")
        return configuration

    def redacted(self) -> dict[str, str]:
        """The properties as they may be shown: whatever may be secret is replaced."""
        return {name: "***" if is_secret(name) else value for name, value in sorted(self.properties.items())}

    def __repr__(self) -> str:
        return f"KafkaSettings({self.redacted()})"
