"""Makes a secured lab's principals known to its brokers: their passwords (SCRAM, KIP-554) and what they may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from airflow_eos_provider.kafka.acl_values import Acl
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: The least that brokers take; the passwords are random, so more would only cost time.
ITERATIONS = 4096

_SECONDS = 30.0


def enrol(kafka: KafkaSettings, logins: Mapping[str, str]) -> None:
    """Tell the brokers the passwords; they are sent salted and hashed, and never stand in a command.

    :param kafka: of the lab, with all rights.
    :param logins: password by user.
    :raises UnreachableError: no broker answered.
    """
    admin = QuietAdmin(kafka)
    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, how, password.encode()) for user, password in logins.items()
    ]
    answers = admin.client.alter_user_scram_credentials(wanted, request_timeout=_SECONDS)
    for user, answer in answers.items():
        admin.answer(answer, f"making the login of {user}")


def allow(kafka: KafkaSettings, acls: Iterable[Acl]) -> None:
    """Make ACLs.

    :param kafka: of the lab, with all rights.
    :raises UnreachableError: no broker answered.
    """
    with TransactionsClient(kafka, timeout_seconds=_SECONDS) as client:
        client.create_acls(tuple(acls))
