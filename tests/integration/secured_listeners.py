"""A lab's broker with a listener for each way in: passwords, certificates, tokens, each over TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.broker import Broker
from tests.lab.certificates import Authority
from tests.lab.token_issuer import TokenIssuer

USER, PASSWORD = "operator", "0perat0r-pa55word"
STORE_PASSWORD = "st0re-pa55word"
CLIENT = "eos-client"

#: Sessions of tokens end after this, so that whoever stays has to log in anew.
SESSION_MS = 4_000

_MODULES = "org.apache.kafka.common.security"
_VALIDATOR = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"


class SecuredListeners:
    """The listeners of a broker that starts while :meth:`given` lasts.

    :param folder: for the certificates.
    :param issuer: whose tokens are taken.
    """

    def __init__(self, folder: Path, issuer: TokenIssuer) -> None:
        self._issuer = issuer
        self.authority = Authority(folder / "certificates", STORE_PASSWORD)
        self.broker = self.authority.issue("broker")
        self.client = self.authority.issue(CLIENT)
        passwords, certificates, tokens = free_ports(3)
        self.passwords = f"127.0.0.1:{passwords}"
        self.certificates = f"127.0.0.1:{certificates}"
        self.tokens = f"127.0.0.1:{tokens}"

    @property
    def trust(self) -> dict[str, str]:
        return {"ssl.ca.location": str(self.authority.certificate)}

    def password(self, mechanism: str) -> dict[str, str]:
        """Client properties for a login by password."""
        login = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        return {"security.protocol": "SASL_SSL", **self.trust, **login}

    def token(self, client_id: str, secret: str) -> dict[str, str]:
        """Client properties for a login by token."""
        return {
            "security.protocol": "SASL_SSL",
            **self.trust,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": client_id,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": self._issuer.token_endpoint,
            "sasl.oauthbearer.scope": "kafka",
        }

    def add_scram(self, bootstrap_servers: str) -> None:
        """Let the user in by SCRAM too."""
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            given = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([given]).values():
                try:
                    future.result()
                except KafkaException as error:
                    raise AssertionError(f"{USER} gets no {mechanism}") from error

    @contextmanager
    def given(self) -> Iterator[None]:
        """A broker that starts meanwhile has them."""
        plain_properties, plain_command = Broker.properties, Broker._command
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._issuer.keys_endpoint}"

        def properties(broker: Broker) -> dict[str, str]:
            found = plain_properties(broker)
            own = f"PASSWORDS://{self.passwords},CERTIFICATES://{self.certificates},TOKENS://{self.tokens}"
            return {
                **found,
                "listeners": f"{found['listeners']},{own}",
                "advertised.listeners": f"{found['advertised.listeners']},{own}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
                "PASSWORDS:SASL_SSL,CERTIFICATES:SSL,TOKENS:SASL_SSL",
                **self._stores(),
                **self._mechanisms(),
            }

        def command(broker: Broker, main_class: str, arguments: list[str]) -> list[str]:
            java, *rest = plain_command(broker, main_class, arguments)
            return [java, allowed, *rest]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Broker, "properties", properties)
            patch.setattr(Broker, "_command", command)
            yield

    def _stores(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.broker.keystore),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.authority.truststore),
            "ssl.truststore.password": STORE_PASSWORD,
            "listener.name.certificates.ssl.client.auth": "required",
        }

    def _mechanisms(self) -> dict[str, str]:
        plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        tokens = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        return {
            "listener.name.passwords.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.passwords.plain.sasl.jaas.config": plain,
            "listener.name.passwords.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.passwords.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": tokens,
            "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            "listener.name.tokens.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
            "sasl.oauthbearer.jwks.endpoint.url": self._issuer.keys_endpoint,
            "sasl.oauthbearer.expected.audience": "kafka",
        }


#: Token endpoint, client and secret of :func:`callback`.
CALLBACK_ISSUER = ("", "", "")


def callback(_: str) -> tuple[str, float]:
    """As a user writes one for ``oauth_cb``."""
    url, client, secret = CALLBACK_ISSUER
    answer = httpx.post(url, data={"grant_type": "client_credentials"}, auth=(client, secret), timeout=180).json()
    return answer["access_token"], time.time() + answer["expires_in"]


#: What :func:`expired` gives.
EXPIRED_TOKEN = ""


def expired(_: str) -> tuple[str, float]:
    """A function for ``oauth_cb`` that is wrong about how long its token lives."""
    return EXPIRED_TOKEN, time.time() + 600
