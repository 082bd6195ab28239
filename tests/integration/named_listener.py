"""A second listener of a lab's brokers, on which clients say who they are, by SASL/PLAIN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from airflow_eos_provider.kafka.acl_values import ANYONE, Acl, Operation
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.broker import Broker

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@contextmanager
def denied(lab: Lab, denial: Acl) -> Iterator[None]:
    """What somebody may not do meanwhile; everybody else may, for the first ACL of a resource shuts all others out.

    :param denial: the ACL, which needs not be said to be a denial.
    """
    rules = {replace(denial, is_denial=True), replace(denial, principal=ANYONE, operation=Operation.ALL)}
    with TransactionsClient(lab.cluster().kafka) as client:
        client.create_acls(rules)
        try:
            yield
        finally:
            assert set(client.delete_acls(rules)) == rules


class NamedListener:
    """The listener of brokers that start while :meth:`given` lasts.

    :param user: who may use it.
    :param password: the user's.
    :param more: further properties of the brokers.
    :param others: further users, with their passwords.
    """

    def __init__(
        self,
        user: str,
        password: str,
        more: dict[str, str] | None = None,
        others: dict[str, str] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        self._user, self._more = user, more or {}
        self._passwords = {user: password, **(others or {})}
        self._listener = f"NAMED://127.0.0.1:{port}"
        self.bootstrap_servers = f"127.0.0.1:{port}"

    @property
    def client(self) -> dict[str, str]:
        """Properties of librdkafka's clients."""
        return self.client_of(self._user)

    def client_of(self, user: str) -> dict[str, str]:
        """The same for one of the users."""
        return {**self._mechanism, "sasl.username": user, "sasl.password": self._passwords[user]}

    @property
    def java_client(self) -> dict[str, str]:
        """Properties of Java's clients."""
        return self.java_client_of(self._user)

    def java_client_of(self, user: str) -> dict[str, str]:
        """The same for one of the users."""
        login = f'{_MODULE} required username="{user}" password="{self._passwords[user]}";'
        return {**self._mechanism, "sasl.jaas.config": login}

    @property
    def _mechanism(self) -> dict[str, str]:
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}

    @contextmanager
    def given(self) -> Iterator[None]:
        """Brokers that start meanwhile have it."""
        plain = Broker.properties
        users = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
        login = f"{_MODULE} required {users};"

        def properties(broker: Broker) -> dict[str, str]:
            found = plain(broker)
            return {
                **found,
                "listeners": f"{found['listeners']},{self._listener}",
                "advertised.listeners": f"{found['advertised.listeners']},{self._listener}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,NAMED:SASL_PLAINTEXT",
                "listener.name.named.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.named.plain.sasl.jaas.config": login,
                **self._more,
            }

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Broker, "properties", properties)
            yield
