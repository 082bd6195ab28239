"""librdkafka's properties for kafka-python, which everything but the bulk reads goes through.

A property with a counterpart is translated; a property that only tunes a client and has none is left out by name; a
security property without a counterpart is refused, because without it the client would connect to something else.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.settings import tls
from airflow_eos_provider.kafka.settings.tokens import TokenSource, token_source

_TEXTS = {
    "client.id": "client_id",
    "client.dns.lookup": "client_dns_lookup",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}

_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "receive.message.max.bytes": "receive_message_max_bytes",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "socket.receive.buffer.bytes": "receive_buffer_bytes",
    "socket.send.buffer.bytes": "send_buffer_bytes",
    "socket.timeout.ms": "request_timeout_ms",
}

#: What librdkafka has for none, where kafka-python wants the name not to be there.
_NO_NUMBER = frozenset({"0", "-1"})

#: Read in :func:`configuration` or in ``tokens``; kinit's by librdkafka, which fills the cache that both libraries take
#: their tickets from.
_READ_ELSEWHERE = frozenset(
    {
        "bootstrap.servers",
        "https.ca.location",
        "https.ca.pem",
        "metadata.broker.list",
        "oauth_cb",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.mechanism",
        "sasl.mechanisms",
        "security.protocol",
    }
)

#: Of librdkafka's properties, those that say nothing about whom one talks to and as whom: how its threads, queues,
#: consumers and producers behave. Control messages have limits of their own, set by whoever asks.
_WITHOUT_MEANING = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size
    broker.address.family broker.address.ttl broker.version.fallback check.crcs client.rack compression.codec
    compression.level compression.type coordinator.query.interval.ms debug delivery.report.only.error
    delivery.timeout.ms enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence
    enable.metrics.push enable.partition.eof enable.random.seed fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id
    group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms internal.termination.signal
    isolation.level linger.ms log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy partition.assignment.strategy partitioner
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms request.required.acks request.timeout.ms retries
    retry.backoff.max.ms session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
    """

_KNOWN = (
    frozenset(_TEXTS)
    | frozenset(_NUMBERS)
    | _READ_ELSEWHERE
    | frozenset(_WITHOUT_MEANING.split())
    | tls.NAMES
    | {"ssl.keystore.type"}
)


def configuration(properties: Mapping[str, str]) -> dict[str, Any]:
    """A configuration of kafka-python's admin client."""
    found: dict[str, Any] = {"client_id": "airflow-eos-provider"}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    for name, value in properties.items():
        if name in _TEXTS:
            found[_TEXTS[name]] = value
        elif name in _NUMBERS:
            found.update(_number(name, value))
        elif name not in _KNOWN and _matters(name, protocol):
            raise ConfigurationError(
                f"The client property {name!r} cannot be kept: kafka-python, which asks the brokers, has none such.",
                remedy="Remove it, or use a property that both libraries have: docs/connect/security.md.",
            )
    found["bootstrap_servers"] = [each.strip() for each in properties["bootstrap.servers"].split(",")]
    found["security_protocol"] = protocol
    if protocol in ("SSL", "SASL_SSL"):
        found["ssl_context"] = tls.ssl_context(properties)
    if protocol.startswith("SASL_"):
        found.update(_login(properties))
    return found


def _matters(name: str, protocol: str) -> bool:
    """Whether a property has an effect with this protocol."""
    if name.startswith(("ssl.", "enable.ssl.")):
        return protocol in ("SSL", "SASL_SSL")
    if name.startswith("sasl.oauthbearer."):
        return False  # read in ``tokens``, which refuses what it cannot keep
    if name.startswith(("sasl.", "enable.sasl.")):
        return protocol.startswith("SASL_")
    return True


def _number(name: str, value: str) -> dict[str, int]:
    if value in _NO_NUMBER:
        return {}
    try:
        return {_NUMBERS[name]: int(value)}
    except ValueError:
        raise ConfigurationError(f"The client property {name} is {value!r}.", expected="a whole number") from None


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
        raise ConfigurationError(
            "Kerberos needs the library gssapi, which is not installed.",
            remedy="pip install gssapi (it is built against the system's Kerberos); or use another mechanism.",
        )
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _provider(token_source(properties))}
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not (
        properties.get("sasl.username") and properties.get("sasl.password")
    ):
        raise ConfigurationError(f"For {mechanism}, sasl.username or sasl.password is missing.")
    return {"sasl_mechanism": mechanism}


def _provider(source: TokenSource) -> Any:
    """kafka-python asks it at each login, and again before the broker ends a session."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return source.token().value

        def extensions(self) -> dict[str, str]:
            return dict(source.token().extensions)

    source.token()  # a refusal is reported here, in words; the client would try until its time is over
    return Provider()
