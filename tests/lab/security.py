"""A secured lab: who is who, their logins (SCRAM, KIP-554), and the settings of brokers, workers and clients.

Each broker has one listener for clients with passwords (TLS, SASL/SCRAM), one for clients with tokens (TLS,
SASL/OAUTHBEARER by the lab's own issuer) and one for certificates (mutual TLS), by which brokers, controllers and the
lab itself reach it; its authorizer denies whatever no ACL allows. The workers' REST API takes TLS
with a client's certificate, and basic authentication (Connect's ``BasicAuthSecurityRestExtension``).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.lab.servers.connect_worker import Worker
from airflow_eos_provider.redaction import remember

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER = "org.apache.kafka.common.security.oauthbearer"
_BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension"
_MECHANISM = "SCRAM-SHA-512"

#: The fewest iterations that brokers take; the passwords are random, so more would only cost time.
_ITERATIONS = 4096

_SECONDS = 30.0

#: Subjects of certificates: the brokers, and the lab itself. They may do everything.
_BROKER = "broker"
_LAB = "lab"

#: Subjects of certificates for the workers' REST API.
_WORKER_SERVER = "connect-rest"
_REST_CLIENT = "eos-rest"


class Principal(StrEnum):
    """Whom the brokers know by a password. Each has the rights of its part only, and ``nobody`` has none."""

    WORKER = "worker"
    PRODUCER = "connector-producer"
    CONSUMER = "connector-consumer"
    ADMIN = "connector-admin"
    MIRROR = "mirror"
    OPERATOR = "eos-operator"
    READER = "eos-reader"
    INTERVAL_RUNS = "interval-runs"
    NOBODY = "nobody"

    @property
    def acl_name(self) -> str:
        """As ACLs name it."""
        return f"User:{self.value}"


class SecuredPorts(NamedTuple):
    """The further ports of a secured broker, on the loopback interface."""

    certificates: int
    tokens: int
    issuer: int


@dataclass(frozen=True, slots=True)
class Security:
    """The security of a lab."""

    folder: Path

    def make(self) -> None:
        """Draw the passwords, make the certificates, write the files of the REST API's users."""
        from tests.lab.certificates import Authority  # it takes half a second, which other labs save

        passwords = {name: secrets.token_urlsafe(18) for name in (*Principal, "stores", "rest")}
        authority = Authority(self.folder, passwords["stores"])
        for name in (_BROKER, _LAB, _WORKER_SERVER, _REST_CLIENT):
            authority.issue(name)
        users = self.folder / "rest-users.properties"
        _private(users, f"{_REST_CLIENT}: {passwords['rest']}\n")
        module = f'{_BASIC_AUTH}.PropertyFileLoginModule required file="{users}";'
        _private(self._rest_login, f"KafkaConnect {{ {module} }};\n")
        _private(self.passwords_file, json.dumps(passwords))

    # Clients

    def client(self, principal: Principal) -> dict[str, str]:
        """How librdkafka logs in as a principal."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": principal.value,
            "sasl.password": self._passwords[principal.value],
        }

    def token_client(self, principal: Principal, issuer_port: int) -> dict[str, str]:
        """How librdkafka logs in as a principal by tokens (OIDC client credentials), on the listener for these."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": principal.value,
            "sasl.oauthbearer.client.secret": self._passwords[principal.value],
            "sasl.oauthbearer.token.endpoint.url": f"{self.issuer_url(issuer_port)}/token",
        }

    @staticmethod
    def issuer_url(issuer_port: int) -> str:
        """Where the issuer of tokens is."""
        return f"http://127.0.0.1:{issuer_port}"

    def java_client(self, principal: Principal) -> dict[str, str]:
        """How Java's clients log in as a principal."""
        password = self._passwords[principal.value]
        return {
            "security.protocol": "SASL_SSL",
            **self._truststore(),
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_SCRAM} required username="{principal.value}" password="{password}";',
        }

    def lab_client(self, certificate_port: int) -> KafkaSettings:
        """How the lab itself reaches a broker: by a certificate, with all rights."""
        return KafkaSettings.of(
            f"127.0.0.1:{certificate_port}",
            {
                "security.protocol": "SSL",
                "ssl.ca.location": str(self._authority),
                "ssl.certificate.location": str(self.folder / f"{_LAB}.pem"),
                "ssl.key.location": str(self.folder / f"{_LAB}.key"),
            },
        )

    def rest(self) -> dict[str, str]:
        """``rest`` of a cluster file."""
        return {
            "username": _REST_CLIENT,
            "password": self._passwords["rest"],
            "ca": str(self._authority),
            "client_certificate": str(self.folder / f"{_REST_CLIENT}.pem"),
            "client_key": str(self.folder / f"{_REST_CLIENT}.key"),
        }

    def rest_settings(self) -> RestSettings:
        """How the lab itself calls the workers."""
        rest = self.rest()
        remember(rest)
        return RestSettings(
            username=rest["username"],
            password=rest["password"],
            ca=Path(rest["ca"]),
            client_certificate=Path(rest["client_certificate"]),
            client_key=Path(rest["client_key"]),
        )

    def enrol(self, kafka: KafkaSettings) -> None:
        """Tell the brokers the passwords; they are sent salted and hashed."""
        admin = AdminClient(kafka.confluent())
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, how, password.encode()) for user, password in self.logins().items()
        ]
        for answer in admin.alter_user_scram_credentials(wanted, request_timeout=_SECONDS).values():
            answer.result()

    def logins(self) -> dict[str, str]:
        """The password of each principal."""
        return {principal.value: self._passwords[principal.value] for principal in Principal}

    # Servers

    def broker_properties(self, port: int, controller_port: int, ports: SecuredPorts) -> dict[str, str]:
        """Settings of a broker: listeners, TLS, authorizer."""
        listeners = f"CLIENTS://127.0.0.1:{port},CERTIFICATES://127.0.0.1:{ports.certificates},TOKENS://127.0.0.1:{ports.tokens}"
        return {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CERTIFICATES:SSL,TOKENS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CERTIFICATES",
            **self._keystore(_BROKER),
            **self._truststore(),
            "listener.name.certificates.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "listener.name.clients.sasl.enabled.mechanisms": _MECHANISM,
            f"listener.name.clients.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
            "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": f"{_BEARER}."
            "OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self._keys_url(ports),
            "sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{_BROKER};User:{_LAB}",
        }

    def worker_properties(self, url: str) -> dict[str, str]:
        """Settings of a worker: its own login, those of its connectors' clients, and its REST API."""
        logins = {
            "": Principal.WORKER,
            "producer.": Principal.PRODUCER,
            "consumer.": Principal.CONSUMER,
            "admin.": Principal.ADMIN,
        }
        clients = {
            prefix + name: value
            for prefix, principal in logins.items()
            for name, value in self.java_client(principal).items()
        }
        server = {**self._keystore(_WORKER_SERVER), **self._truststore(), "ssl.client.auth": "required"}
        return {
            **clients,
            "listeners": url,
            "rest.advertised.listener": "https",
            **{f"listeners.https.{name}": value for name, value in server.items()},
            "rest.extension.classes": f"{_BASIC_AUTH}.BasicAuthSecurityRestExtension",
        }

    def keys_option(self, ports: SecuredPorts) -> str:
        """An option of a broker's JVM: Kafka 4 reads keys only from addresses that are allowed there."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys_url(ports)}"

    def _keys_url(self, ports: SecuredPorts) -> str:
        return f"{self.issuer_url(ports.issuer)}/keys"

    @property
    def login_option(self) -> str:
        """An option of a worker's JVM: the users of the REST API."""
        return f"-Djava.security.auth.login.config={self._rest_login}"

    # Files

    @property
    def _authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def _rest_login(self) -> Path:
        return self.folder / "rest-login.conf"

    @property
    def passwords_file(self) -> Path:
        return self.folder / "passwords.json"

    @property
    def _passwords(self) -> Mapping[str, str]:
        found: dict[str, str] = json.loads(self.passwords_file.read_text(encoding="utf-8"))
        return found

    def _keystore(self, name: str) -> dict[str, str]:
        password = self._passwords["stores"]
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.folder / f"{name}.p12"),
            "ssl.keystore.password": password,
            "ssl.key.password": password,
        }

    def _truststore(self) -> dict[str, str]:
        return {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "trust.p12"),
            "ssl.truststore.password": self._passwords["stores"],
        }


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredBroker(Broker):
    """A broker of a secured lab."""

    security: Security
    secured_ports: SecuredPorts

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port, self.controller_port, self.secured_ports.certificates, self.secured_ports.tokens)

    @property
    def lab_client(self) -> KafkaSettings:
        return self.security.lab_client(self.secured_ports.certificates)

    def listener_properties(self) -> dict[str, str]:
        return self.security.broker_properties(self.port, self.controller_port, self.secured_ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredWorker(Worker):
    """A worker of a secured lab."""

    security: Security

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def rest_settings(self) -> RestSettings:
        return self.security.rest_settings()

    def properties(self, **given: Any) -> dict[str, str]:
        return Worker.properties(self, **given) | self.security.worker_properties(self.url)
