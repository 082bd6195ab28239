"""A transactional producer whose every wait is bounded and whose errors say what they mean for a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, Complaints, explain, quiet_producer
from airflow_eos_provider.kafka.config import KafkaSettings

#: Limits of single calls, seconds. init waits for the markers of the id's last transaction, so for their brokers.
INIT_SECONDS = 60.0
COMMIT_SECONDS = 60.0
ABORT_SECONDS = 15.0

#: One look at what the broker says while a queue is full, seconds.
_POLL_SECONDS = 0.05

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

Headers = list[tuple[str, str | bytes | None]]


class TransactionExpiredError(EosError):
    """A transaction was open for longer than its timeout, so the broker aborted it. Nothing of it is visible."""


class TransactionalProducer:
    """The holder of one transactional id, until another one takes it.

    Errors of every method: :class:`FencedError` when another holder has taken the id, :class:`TransactionExpiredError`
    when the broker has given the transaction up, :class:`ConfigurationError` with the topic, id or rule that is at
    fault, :class:`EosError` and :class:`UnreachableError` for the rest. After an error the open transaction is aborted.

    :param settings: the Kafka cluster.
    :param transactional_id: the id.
    :param timeout_ms: transaction timeout, milliseconds.
    :param known_topic: a topic that is there.
    :param properties: further librdkafka properties.
    :param tell_offsets: learn where records end up; costs a call for each.
    :ivar last_offset: of the record that was taken last, -1 if not told.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        timeout_ms: int,
        known_topic: str,
        properties: Mapping[str, str] | None = None,
        tell_offsets: bool = False,
    ) -> None:
        self.last_offset = -1
        self.transactional_id = transactional_id
        self._settings = settings
        self._known_topic = known_topic
        self._timeout_ms = timeout_ms
        self._complaints = Complaints()
        self._failure: tuple[KafkaError, str] | None = None
        self._begun_at: float | None = None
        configured = KafkaSettings({**settings.properties, **(properties or {})})
        self._producer: Producer = quiet_producer(
            configured,
            self._complaints,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable_idempotence=True,
            partitioner="murmur2_random",  # where Java's producer would put a key, and compaction looks for it
            delivery_report_only_error=not tell_offsets,
        )

    def init(self) -> None:
        """Take the id: whatever its last holder left open is aborted, what it decided is in every partition."""
        # librdkafka asks for the coordinator at once if it is connected, and half a second later if it is not yet.
        with contextlib.suppress(KafkaException):
            self._producer.list_topics(self._known_topic, timeout=CONNECT_SECONDS)
        self._until_done(self._producer.init_transactions, INIT_SECONDS, "taking the id")

    def begin(self) -> None:
        self._failure = None
        with self._explaining("beginning a transaction"):
            self._producer.begin_transaction()
        self._begun_at = time.monotonic()

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Queue one record; waits while the queue is full.

        :param partition: -1 for the one that the key's hash names.
        :param timestamp_ms: since the epoch, 0 for now.
        """
        deadline = 0.0
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    headers=headers,
                    timestamp=timestamp_ms,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                deadline = deadline or time.monotonic() + COMMIT_SECONDS
                self._serve(_POLL_SECONDS)
                if time.monotonic() > deadline:
                    raise self._stop(
                        EosError(f"The brokers took no record of {self.transactional_id} for {COMMIT_SECONDS:.0f} s.")
                    ) from None
            except KafkaException as error:
                raise self._stop(self._explained(error.args[0], f"writing to topic {topic}", topic)) from error
            else:
                return

    def produce_all(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Headers | None = None,
    ) -> None:
        """As :meth:`produce` for each record, with little around each call of the client's.

        :param headers: of every one of them.
        """
        produce, report = self._producer.produce, self._on_delivery
        more: dict[str, Any] = {} if headers is None else {"headers": headers}
        for key, value in zip(keys, values, strict=True):
            try:
                produce(topic, value, key, -1, report, **more)
            except (BufferError, KafkaException):  # a full queue is waited for, anything else told again, and explained
                self.produce(topic, key, value, headers=headers)

    def poll(self) -> None:
        """Look whether a record was refused."""
        self._serve(0)

    def flush(self) -> None:
        """Return when every record is with the brokers."""
        with self._explaining("writing"):
            left = self._producer.flush(COMMIT_SECONDS)
        self._raise_failure()
        if left:
            raise self._stop(
                EosError(f"{left} records of {self.transactional_id} were not taken in {COMMIT_SECONDS:.0f} s.")
            )

    def commit(self) -> None:
        """Decide the transaction; after an error it is not known whether it is decided, only the next init knows."""
        self._until_done(self._producer.commit_transaction, COMMIT_SECONDS, "committing")
        self._begun_at = None

    def abort(self) -> None:
        """Give up what is open; without effect if nothing is, or if the id is another's by now."""
        if self._begun_at is None:
            return
        self._begun_at = None
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.abort_transaction(ABORT_SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._begun_at is not None

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.last_offset = message.offset() or 0
        elif self._failure is None:
            self._failure = (error, message.topic() or "")

    def _serve(self, seconds: float) -> None:
        with self._explaining("writing"):
            self._producer.poll(seconds)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            error, topic = self._failure
            raise self._stop(self._explained(error, f"writing to topic {topic}", topic))

    def _until_done(self, act: Callable[[float], None], seconds: float, what: str) -> None:
        """Take up an act again that only ran out of time, as librdkafka asks for, until its limit."""
        deadline = time.monotonic() + seconds
        with self._explaining(what):
            while True:
                try:
                    return act(max(deadline - time.monotonic(), 0.1))
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() >= deadline:
                        raise

    @contextlib.contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        """Turn librdkafka's errors into this package's."""
        try:
            yield
        except KafkaException as error:
            with contextlib.suppress(KafkaException, SystemError):
                self._producer.poll(0)  # a record that was refused is why a transaction cannot be committed
            self._raise_failure()
            raise self._stop(self._explained(error.args[0], what)) from error
        except SystemError as error:
            # confluent-kafka raises a fatal error out of its callbacks, and loses it when another one follows.
            raise self._stop(self._explained(self._fatal_error(), what)) from error

    def _fatal_error(self) -> KafkaError:
        try:
            self._producer.abort_transaction(ABORT_SECONDS)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        return KafkaError(KafkaError._FAIL, "the client gave up for a reason that it did not tell")

    def _stop(self, error: EosError) -> EosError:
        self.abort()
        return error

    def _explained(self, error: KafkaError, what: str, topic: str = "") -> EosError:
        code = error.code()
        open_for = 0.0 if self._begun_at is None else time.monotonic() - self._begun_at
        expired = open_for * 1000 >= self._timeout_ms
        if expired and (code in _FENCED or code in (KafkaError.INVALID_TXN_STATE, KafkaError._STATE)):
            return TransactionExpiredError(
                f"The transaction of {self.transactional_id} was open for {open_for:.0f} s; the broker aborted it.",
                expected=f"at most transaction_timeout_ms, {self._timeout_ms} ms",
                remedy="Plan more, smaller slices, or raise transaction_timeout_ms.",
            )
        if code in _FENCED:
            return FencedError(
                f"Another holder has taken the transactional id {self.transactional_id}; this one writes no more.",
                remedy="Nothing is lost: follow the attempt that came after this one.",
            )
        if code in _TOO_LARGE:
            return ConfigurationError(
                f"A record for topic {topic} is too large: {error.str()}.",
                expected="at most the topic's max.message.bytes and the producer's message.max.bytes",
                remedy="Raise both (message.max.bytes in the pipeline's producer properties), or make records smaller.",
            )
        if code in _UNKNOWN:
            return ConfigurationError(
                f"There is no topic {topic}, or no such partition in it: {error.str()}.",
                remedy="Create the topic, or correct its name.",
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ConfigurationError(
                f"The brokers do not allow a transaction timeout of {self._timeout_ms} ms.",
                expected="at most their transaction.max.timeout.ms",
                remedy="Lower the pipeline's transaction_timeout_ms.",
            )
        return explain(error, f"{what}, transactional id {self.transactional_id}", self._settings, self._complaints)
