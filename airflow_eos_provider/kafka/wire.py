"""kafka-python's connections: TLS, logins, throttling and reconnects for messages that this package makes itself.

This is the only module that knows kafka-python's private names. A request is answered, or fails, within kafka-python's
request timeout (``socket.timeout.ms``); on that timeout its connection is closed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import kafka.errors
from kafka import TopicPartition
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.quiet import quiet_kafka_python
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

T = TypeVar("T")

_REFUSALS = (
    kafka.errors.AuthorizationError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
)

#: TLS that will not come about: whose certificate is not trusted, or what the two cannot agree on (RFC 8446 §6.2).
_TLS_REFUSALS = re.compile(
    r"\[SSL: \w*(?:CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|PROTOCOL_VERSION|VERSION_NUMBER|RECORD_LAYER)"
)

#: An error of a connection, such as ``111 ECONNREFUSED``.
_ERRNO = re.compile(r"\b(\d+) E[A-Z]+\b")

#: By default the pause between two connections to a broker grows to 30 s; every call here has its own deadline.
_LONGEST_BACKOFF_MS = 500

#: The producer keeps its own, smaller window; questions to the coordinator share the connection.
_MOST_IN_FLIGHT = 400

#: As librdkafka's default and that of kafka-python's own consumer; its connections alone take a hundredth of it.
_LARGEST_ANSWER_BYTES = 100_000_000

#: Ids in one look-up of coordinators; about 100 bytes each.
_LOOK_UP = 5000

_STOP_SECONDS = 1.0


#: Errors that the same question may not meet again.
MAY_PASS = (kafka.errors.RetriableError, kafka.errors.UnknownBrokerIdError, kafka.errors.BrokerNotAvailableError)


def is_refusal(error: BaseException | None) -> bool:
    """Whether another attempt would be answered in the same way."""
    return isinstance(error, _REFUSALS) or bool(_TLS_REFUSALS.search(str(error)))


def may_pass(error: BaseException) -> bool:
    """Whether the same question may be answered if it is asked again."""
    return isinstance(error, MAY_PASS) and not is_refusal(error)


def words(error: Exception) -> str:
    """An error of kafka-python's with its name."""
    text = _ERRNO.sub(lambda found: os.strerror(int(found[1])), str(error).strip().rstrip("."))
    name = type(error).__name__
    return text if name in text else f"{name}: {text}" if text else name


def explained(error: Exception, what: str, settings: KafkaSettings) -> EosError:
    """This package's error for one of kafka-python's."""
    servers = settings.bootstrap_servers
    if isinstance(error, kafka.errors.AuthorizationError):
        return ConfigurationError(
            f"The Kafka cluster at {servers} refused {settings.who} ({what}): {words(error)}.",
            remedy=settings.rights_remedy,
        )
    if is_refusal(error):
        return ConfigurationError(
            f"The Kafka cluster at {servers} refused ({what}): {words(error)}.",
            remedy="Check the client's credentials and certificates, and the ACLs of its principal.",
        )
    if isinstance(error, kafka.errors.UnknownTopicOrPartitionError):
        return ConfigurationError(
            f"The Kafka cluster at {servers} does not know the partition ({what}).",
            remedy="Check the topic's name and bootstrap_servers.",
        )
    # An answer of TLS to a client without it is no frame.
    if isinstance(error, kafka.errors.RetriableError | kafka.errors.InvalidReceiveError | OSError):
        return UnreachableError(
            f"The Kafka cluster at {servers} did not answer ({what}): {words(error)}.",
            remedy="Check that bootstrap_servers is right, that the brokers run, and security.protocol.",
        )
    return EosError(f"The Kafka cluster at {servers} answered with an error ({what}): {words(error)}.")


class Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Connections of which it is known why they were not made.

    kafka-python says so in its log alone: a broker that refuses a login answers and hangs up at once, and of the two
    only the second reaches whoever waits. So it would try until its time is over, and then say that time is over.
    """

    last_failure: BaseException | None = None

    def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        connection = super().get_connection(node_id, *arguments, **options)
        if connection.initializing and "close" not in vars(connection):
            self._watch(connection, node_id)
        return connection

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        receive = transport._sock_recv

        def data_before_the_end() -> tuple[bytes, BaseException | None]:
            """kafka-python 3.0.12 drops what it reads together with the connection's end, which comes again."""
            data, end = receive()
            return data, None if data else end

        transport._sock_recv = data_before_the_end
        return transport

    def _watch(self, connection: Any, node_id: Any) -> None:
        close, begun = connection.close, connection.init_future

        def keep(failure: BaseException | None) -> None:
            if failure is None or is_refusal(self.last_failure):
                return
            self.last_failure = failure
            if is_refusal(failure):
                self._auth_failures[node_id] = failure  # raised at the next attempt

        def close_and_keep(error: BaseException | None = None) -> None:
            if not begun.succeeded():
                keep(error)
            close(error)

        connection.close = close_and_keep
        begun.add_errback(keep)


class NotSentError(Exception):
    """A request was not sent, and no byte of it: the connection is throttled, paused or not allowed yet.

    :ivar reason: kafka-python's error.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Wire:
    """The connections of one client, on a thread of their own, which begin to be made at once.

    Only :meth:`run`, :meth:`start` and :meth:`close` may be called from other threads; all else, from what those run.

    :raises ConfigurationError: a property has no counterpart in kafka-python.
    :raises UnreachableError: no endpoint answers that could give a token.
    """

    def __init__(self, settings: KafkaSettings, *, connect_seconds: float) -> None:
        try:
            configured = {
                "receive_message_max_bytes": _LARGEST_ANSWER_BYTES,
                **settings.kafka_python(),
                "reconnect_backoff_max_ms": _LONGEST_BACKOFF_MS,
                "max_in_flight_requests_per_connection": _MOST_IN_FLIGHT,
            }
            self._net: Any = NetworkSelector(**configured)
            self._manager: Any = Manager(self._net, **configured)
        except (kafka.errors.KafkaConfigurationError, ValueError, AssertionError) as error:
            raise ConfigurationError(f"The Kafka client settings are not usable: {error}.") from None
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._quiet = ExitStack()
        self._quiet.enter_context(quiet_kafka_python())
        self._net.start()
        self._thread: threading.Thread = self._net._io_thread
        self._manager.bootstrap_async(connect_seconds * 1000)

    def run(self, act: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Run a coroutine on the connections' thread, and wait for its result. It has to bound its own time."""
        if self._net._stop:
            raise kafka.errors.KafkaConnectionError("the connections are closed")
        return self._net.run(act, *arguments)  # type: ignore[no-any-return]

    def start(self, act: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Future:
        """As :meth:`run`, without waiting; coroutines can await the result."""
        return self._net.call_soon_with_future(act, *arguments)

    def forget_refusals(self) -> None:
        """Log in anew with the next question: a token or a certificate may have been renewed."""
        self._manager.last_failure = None
        self._manager._auth_failures.clear()

    def close(self) -> None:
        """End all connections at once; nothing is sent any more. May be called twice, and from any thread."""
        if self._net._stop:
            return
        with self._quiet:
            self._net.call_soon_threadsafe(self._hang_up)
            self._net._stop = True
            self._net.wakeup()
            if threading.current_thread() is not self._thread:
                self._thread.join(_STOP_SECONDS)

    def _hang_up(self) -> None:
        for connection in list(self._manager._conns.values()):
            connection.close(kafka.errors.KafkaConnectionError("the client was closed"))
        self._manager.close()

    # On the connections' thread

    async def connected(self, deadline: float) -> None:
        """Return when the brokers are known.

        :param deadline: by ``time.monotonic``.
        """
        while True:
            try:
                limit_ms = max(1.0, (deadline - time.monotonic()) * 1000)
                await self._manager.bootstrap_async(limit_ms, refresh=not self._manager.bootstrapped)
            except kafka.errors.KafkaTimeoutError:
                reason = self._manager.last_failure
                if is_refusal(reason) or time.monotonic() >= deadline:
                    raise reason or kafka.errors.KafkaTimeoutError("no broker answers") from None
            else:
                return

    def send(self, request: Any, node_id: int) -> Future:
        """Send a request.

        :returns: what its answer can be awaited by.
        """
        try:
            future = self._manager.send(request, node_id)
        except kafka.errors.KafkaError as error:
            raise NotSentError(error) from error
        except Exception as error:  # a connection that is just being closed: some of it may have been written
            return Future().failure(kafka.errors.KafkaConnectionError(str(error)))
        if future.failed() and isinstance(future.exception, kafka.errors.NodeNotReadyError):
            raise NotSentError(future.exception)
        return future

    async def answer(self, request: Any, node_id: int, deadline: float) -> Any:
        """Send a request and wait for its answer."""
        return await self.within(self.ask(request, node_id), deadline)

    def ask(self, request: Any, node_id: int) -> Future:
        """As :meth:`send`; what was not sent is a future that has failed."""
        try:
            return self.send(request, node_id)
        except NotSentError as error:
            return Future().failure(error.reason)

    async def within(self, future: Future, deadline: float) -> Any:
        """What a future comes to."""
        return await self._manager.wait_for(future, max(0.0, deadline - time.monotonic()) * 1000)

    async def pause(self, seconds: float) -> None:
        """Wait, and let other coroutines run."""
        await self._net.sleep(seconds)

    def any_broker(self) -> int:
        """A broker that has little to do for this client."""
        node_id = self._manager.least_loaded_node()
        if node_id is None:
            raise kafka.errors.NodeNotReadyError("no broker can be asked now")
        return node_id  # type: ignore[no-any-return]

    def brokers(self) -> list[int]:
        """The brokers that are known, by their ids."""
        return sorted(int(broker.node_id) for broker in self._manager.cluster.brokers())

    @property
    def broker_version(self) -> tuple[int, int]:
        """The version of the broker that was asked first, by the messages that it knows."""
        major, minor, *_ = self._manager.broker_version
        return int(major), int(minor)

    def newest_version(self, request: Any) -> int:
        """The newest version of a request that this broker and kafka-python know."""
        return self._manager.broker_version_data.api_version(request)  # type: ignore[no-any-return]

    async def coordinator(self, transactional_id: str, deadline: float) -> int:
        """The broker that coordinates an id now."""
        found = (await self.coordinators([transactional_id], CoordinatorType.TRANSACTION, deadline))[transactional_id]
        if isinstance(found, Exception):
            raise found
        return found

    async def coordinators(
        self, keys: Sequence[str], kind: CoordinatorType, deadline: float
    ) -> dict[str, int | kafka.errors.KafkaError]:
        """By group or transactional id the broker that coordinates it now, or why none does."""
        found: dict[str, int | kafka.errors.KafkaError] = {}
        for start in range(0, len(keys), _LOOK_UP):
            request = FindCoordinatorRequest(
                key_type=kind.value,
                coordinator_keys=keys[start : start + _LOOK_UP],
                min_version=4,  # from here on it takes more than one key; Kafka 3.0, before exactly-once sources
            )
            for row in (await self.answer(request, self.any_broker(), deadline)).coordinators:
                try:
                    # Not only for us: kafka-python knows a coordinator that is not in its metadata only from here.
                    found[row.key] = self._manager.cluster.add_coordinator(row, kind, row.key, synthesize_node_id=False)
                except kafka.errors.KafkaError as error:
                    found[row.key] = error
        return found

    async def refresh(self, topics: Collection[str], deadline: float) -> None:
        """Ask who leads the partitions of topics; further ones that were asked for before are asked for, too."""
        cluster = self._manager.cluster
        cluster._topics.update(topics)
        await self.within(self._manager.call_soon(cluster.refresh_metadata), deadline)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition; None if it has no leader, or nothing is known of it."""
        leader = self._manager.cluster.leader_for_partition(TopicPartition(topic, partition))
        return None if leader is None or leader < 0 else leader

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has; None if it is not there."""
        found = self._manager.cluster.partitions_for_topic(topic)
        return len(found) if found else None

    def is_hidden(self, topic: str) -> bool:
        """Whether this client may not describe a topic."""
        return topic in self._manager.cluster.unauthorized_topics
