"""librdkafka clients that stay quiet, and its errors in this package's words."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.questions import not_allowed
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: librdkafka writes to standard error unless it has a logger, and repeats itself for ever while a broker is away. What
#: it says there reaches the operator once, in an error; whoever wants the lines adds a handler to this logger.
logger = logging.getLogger("airflow_eos_provider.librdkafka")
logger.addHandler(logging.NullHandler())
logger.propagate = False

#: A partition's leader has just moved, and the client still knows the old one; who leads it now has not answered. The
#: answer itself is no reason for librdkafka's admin calls to ask again.
MOVED = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
    }
)
#: Who is asked does not know the topic or partition. Of a topic that another broker knows, it has not heard yet.
NOT_KNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_UNREACHABLE = MOVED | frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError._DESTROY,
    }
)
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
#: The brokers know who asks, and have no right for it.
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
}


#: A broker that wants another certificate, or none of ours, says so after the handshake (TLS 1.3).
_TLS_REFUSAL = re.compile(r"alert (?:bad certificate|certificate \w+|unknown ca)|alert number (?:4[2-8]|116)\b")


#: So long a refusal explains what fails, seconds: librdkafka reports one that lasts about every half a minute.
_REFUSED_SECONDS = 90.0

#: Codes below are librdkafka's own. Any other is an answer: who has one was let in.
_FIRST_ANSWER = -99


class ClientErrors:
    """The last error that librdkafka reported in the background: the reason behind a bare time-out.

    :ivar last: its words, None if there was none.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self._refused_at: float | None = None

    def __call__(self, error: KafkaError) -> None:
        # "All brokers are down" follows the line that says why, and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error.str()
        if error.code() in (*_REFUSED, *_NOT_ALLOWED) or _TLS_REFUSAL.search(error.str()):
            self._refused_at = time.monotonic()

    @property
    def refused(self) -> bool:
        """Whether a broker has answered of late, and rejected our credentials or certificates."""
        return self._refused_at is not None and time.monotonic() - self._refused_at < _REFUSED_SECONDS

    def clear(self) -> None:
        self.last = None

    def served(self) -> None:
        """A broker has done what was asked: what was refused before is not why a later call fails."""
        self.last = self._refused_at = None


@dataclass(frozen=True, slots=True)
class AssignedConsumer:
    """A consumer for ``assign``, with the errors that librdkafka reported meanwhile."""

    client: Consumer
    client_errors: ClientErrors = field(default_factory=ClientErrors)


def assigned_consumer(settings: KafkaSettings, properties: Mapping[str, object]) -> AssignedConsumer:
    """One of these properties; see :func:`quiet_consumer`."""
    client_errors = ClientErrors()
    return AssignedConsumer(quiet_consumer(settings, client_errors, **properties), client_errors)


def quiet_consumer(settings: KafkaSettings, client_errors: ClientErrors, **extra: object) -> Consumer:
    """A consumer for ``assign``; it joins no group, though librdkafka asks for a group's name all the same."""
    configuration: dict[str, Any] = settings.confluent(
        **{"group_id": "airflow-eos-provider", "enable_auto_commit": False, "enable_auto_offset_store": False, **extra}
    )
    try:
        return Consumer({**configuration, "error_cb": client_errors}, logger=logger)
    except (KafkaException, ValueError, TypeError) as error:
        raise _unfit(error) from None


def quiet_producer(settings: KafkaSettings, client_errors: ClientErrors, **extra: object) -> Producer:
    """A producer."""
    try:
        return Producer({**settings.confluent(**extra), "error_cb": client_errors}, logger=logger)
    except (KafkaException, ValueError, TypeError) as error:
        raise _unfit(error) from None


def explain(
    error: KafkaError,
    what: str,
    settings: KafkaSettings,
    client_errors: ClientErrors | None = None,
    needs: Mapping[Resource, tuple[str, Sequence[Operation]]] = {},
) -> EosError:
    """This package's error for one of librdkafka's.

    :param needs: by type the resource that it was about, and the operations on it that this takes.
    """
    words = client_errors.last if client_errors and client_errors.last else error.str()
    refused = _NOT_ALLOWED.get(error.code())
    if refused is not None:
        name, operations = needs.get(refused, ("", ()))
        if name:
            return not_allowed(settings, what, operations, refused, name)
        return ConfigurationError(
            f"The Kafka cluster at {settings.bootstrap_servers} refused {settings.who} ({what}): "
            f"{error.str().rstrip('.')}.",
            remedy=settings.rights_remedy,
        )
    is_no_answer = error.code() < _FIRST_ANSWER
    if error.code() in _REFUSED or (is_no_answer and client_errors and client_errors.refused):
        return ConfigurationError(
            f"The Kafka cluster at {settings.bootstrap_servers} refused ({what}): {words.rstrip('.')}.",
            remedy="Check the client's credentials and certificates, and the ACLs of its principal.",
        )
    if error.code() in _UNREACHABLE:
        return UnreachableError(
            f"The Kafka cluster at {settings.bootstrap_servers} did not answer ({what}): {words}.",
            remedy="Check that bootstrap_servers is right, that the brokers run, and security.protocol.",
        )
    return EosError(
        f"The Kafka cluster at {settings.bootstrap_servers} answered with an error ({what}): {error.str()}."
    )


def _unfit(error: Exception) -> ConfigurationError:
    words = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    if "No provider for SASL mechanism GSSAPI" in words:
        return ConfigurationError(
            "The installed confluent-kafka is built without GSSAPI (Kerberos), like all its wheels.",
            remedy="Build it on this machine against a librdkafka with Kerberos: pip install --no-binary "
            "confluent-kafka confluent-kafka; or use another mechanism.",
        )
    return ConfigurationError(
        f"The Kafka client settings are not usable: {words}.",
        remedy="Correct them where they are written: in 'client' of the cluster description, in the extra of the kafka "
        "connection, or in the pipeline's producer properties.",
    )
