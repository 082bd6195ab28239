"""librdkafka consumers that stay quiet, and what it reports in the background."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: librdkafka writes to standard error unless it has a logger, and repeats itself for ever while a broker is away. What
#: it says there reaches the operator once, in an error; whoever wants the lines adds a handler to this logger.
logger = logging.getLogger("airflow_eos_provider.librdkafka")
logger.addHandler(logging.NullHandler())
logger.propagate = False

#: Who is asked does not know the topic or partition. Of a topic that another broker knows, it has not heard yet.
NOT_KNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: A broker that wants another certificate, or none of ours, says so after the handshake (TLS 1.3).
_TLS_REFUSAL = re.compile(r"alert (?:bad certificate|certificate \w+|unknown ca)|alert number (?:4[2-8]|116)\b")


#: So long a refusal explains what fails, seconds: librdkafka reports one that lasts about every half a minute.
_REFUSED_SECONDS = 90.0


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
        if error.code() in _REFUSED or _TLS_REFUSAL.search(error.str()):
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
    client_errors: ClientErrors


def assigned_consumer(settings: KafkaSettings, properties: Mapping[str, object]) -> AssignedConsumer:
    """A consumer of these properties, with underscores for dots.

    It joins no group, though librdkafka asks for a group's name all the same.
    """
    needed = {"group_id": "airflow-eos-provider", "enable_auto_commit": False, "enable_auto_offset_store": False}
    configuration: dict[str, Any] = settings.confluent(**{**needed, **properties})
    client_errors = ClientErrors()
    try:
        return AssignedConsumer(Consumer({**configuration, "error_cb": client_errors}, logger=logger), client_errors)
    except (KafkaException, ValueError, TypeError) as error:
        raise _unfit(error) from None


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
