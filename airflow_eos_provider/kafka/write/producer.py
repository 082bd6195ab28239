"""The transactional producer under journal and interval runs: every wait is bounded, every error says what it means.

A call that only ran out of time is repeated, as librdkafka asks for (its errors' ``retriable`` flag). After any other
error the transaction is aborted. Aborting carries the producer's epoch, so it fences no other producer. Where it fails,
``unsettled`` says so: then only the next init, or reading, shows what took effect.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Operation, Resource
from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, NOT_KNOWN, ClientErrors, explain, quiet_producer
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.native_batches import NativeBatches

if TYPE_CHECKING:
    from airflow_eos_provider.kafka.write.bytes_column import BytesColumn

#: One call of the client waits for so long, seconds, before it is repeated: a signal is handled only between two calls.
CALL_SECONDS = 5.0
_PAUSE_SECONDS = 0.2

#: One look at what the broker says while a queue is full, seconds.
_POLL_SECONDS = 0.05

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
#: The answer for a record that was still queued when the producer gave up; the reason is in another error.
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_REJECTED = frozenset({KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION})

#: Transactions depend on these settings: they are set here, and values in shared client settings are ignored.
_SET_HERE = frozenset(
    {
        "acks",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "partitioner",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

_COMMITTING = "committing"
_NO_REASON = KafkaError(KafkaError._FAIL, "the client gave up and reported no reason")

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the steps of a transaction are tried, seconds.

    :param init: it waits for the markers of the id's last transaction, so for their brokers.
    :param commit: also of a queue that is full, and of a flush.
    :param abort: of what has failed.
    """

    init: float = 60.0
    commit: float = 60.0
    abort: float = 15.0


_USUAL = Limits()


class TransactionExpiredError(EosError):
    """A transaction was open for longer than its timeout, so the broker aborted it. Nothing of it is visible."""


class UndecidedError(EosError):
    """The answer to a commit leaves open whether the transaction is decided; the id's next init settles it."""


class _Deliveries:
    """What the brokers answered to the records. The client refers to it for each record on its way: it must not refer
    to the client, which would then never be closed."""

    def __init__(self) -> None:
        self.offset = -1
        self.timestamp_ms = -1
        self.failure: tuple[KafkaError, str] | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.offset, self.timestamp_ms = message.offset() or 0, message.timestamp()[1]
        else:
            self.refused(error, message.topic() or "")

    def refused(self, error: KafkaError, topic: str) -> None:
        if self.failure is None:
            self.failure = (error, topic)


class TransactionalProducer:
    """The holder of one transactional id, until another one takes it.

    Errors of every method: :class:`FencedError` when another holder has taken the id, :class:`TransactionExpiredError`
    when the broker has given the transaction up, :class:`ConfigurationError` with the topic, id or rule that is at
    fault, :class:`EosError` and :class:`UnreachableError` for the rest. After an error the open transaction is aborted.
    A producer that is dropped leaves that to the broker.

    :param settings: the Kafka cluster.
    :param transactional_id: the id.
    :param timeout_ms: transaction timeout, milliseconds.
    :param known_topic: a topic that is there.
    :param properties: further librdkafka properties.
    :param reports_deliveries: learn where and when records were appended; costs a call for each.
    :param limits: how long its steps are tried.
    :ivar unsettled: why a transaction that failed could not be aborted: it may have taken effect, and this producer
        writes no more. None if each is known to be committed or aborted.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        timeout_ms: int,
        known_topic: str,
        properties: Mapping[str, str] | None = None,
        reports_deliveries: bool = False,
        limits: Limits = _USUAL,
    ) -> None:
        self.unsettled: EosError | None = None
        self._limits = limits
        self.transactional_id = transactional_id
        self._settings = settings
        self._known_topic = known_topic
        self._timeout_ms = timeout_ms
        self._client_errors = ClientErrors()
        self._deliveries = _Deliveries()
        self._fatal: KafkaError | None = None
        self._begun_at: float | None = None
        wanted = {**settings.properties, **(properties or {})}
        configured = KafkaSettings({name: value for name, value in wanted.items() if name not in _SET_HERE})
        # Only the client's own loop calls back for a token.
        self._takes_batches = not reports_deliveries and not any(map(callable, configured.confluent().values()))
        self._batches: NativeBatches | None = None
        self._in_batches = False
        self._producer: Producer = quiet_producer(
            configured,
            self._client_errors,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable_idempotence=True,
            acks="all",
            partitioner="murmur2_random",  # where Java's producer would put a key, and compaction looks for it
            delivery_report_only_error=not reports_deliveries,
        )

    def init(self) -> None:
        """Take the id: whatever its last holder left open is aborted, what it decided is in every partition."""
        # librdkafka asks for the coordinator at once if it is connected, and half a second later if it is not yet. The
        # first answer may come from a bootstrap server, whose connection ends once the brokers' names are known; the
        # second one is a broker's.
        with contextlib.suppress(KafkaException):
            for _ in range(2):
                self._producer.list_topics(self._known_topic, timeout=CONNECT_SECONDS)
        self._until_done(self._producer.init_transactions, self._limits.init, "taking the id")

    def begin(self) -> None:
        self._deliveries.failure = None
        self._begun_at = time.monotonic()
        with self._explaining("beginning a transaction"):
            self._producer.begin_transaction()

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
        if self._in_batches:
            self.flush()
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
                    on_delivery=self._deliveries,
                )
            except BufferError:
                deadline = deadline or time.monotonic() + self._limits.commit
                self._await_room(deadline)
            except KafkaException as error:
                cause = self._reason(error.args[0])
                raise self._stop(self._explained(cause, f"writing to topic {topic}", topic)) from error
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
        produce, report = self._producer.produce, self._deliveries
        more: dict[str, Any] = {} if headers is None else {"headers": headers}
        if self._in_batches:
            self.flush()
        for key, value in zip(keys, values, strict=True):
            try:
                produce(topic, value, key, -1, report, **more)
            except (
                BufferError,
                KafkaException,
            ):  # a full queue is waited for, anything else comes again, and is explained
                self.produce(topic, key, value, headers=headers)

    def produce_columns(
        self, topic: str, keys: BytesColumn, values: BytesColumn, headers: Headers | None = None
    ) -> None:
        """As :meth:`produce_all`, for rows that no object is made of where the client takes them as they are.

        Their bytes are copied. Rows of this method and records of the others do not mix: what is under way of the one
        kind is flushed before the first of the other.
        """
        batches = self._batches_of() if headers is None else None
        if batches is None:
            self.produce_all(topic, keys.rows(), values.rows(), headers)
            return
        if not self._in_batches:
            self.flush()
            self._in_batches = True
        messages = batches.messages(keys, values)
        first, deadline = 0, 0.0
        while first < len(messages):
            taken, error = batches.enqueue(topic, messages[first:])
            first += taken
            if error is None:
                return
            if error.code() != KafkaError._QUEUE_FULL:
                self._serve(0)  # says why the client takes no more, if a record was refused
                raise self._stop(self._explained(self._reason(error), f"writing to topic {topic}", topic))
            deadline = time.monotonic() + self._limits.commit if taken or not deadline else deadline
            self._await_room(deadline)

    def poll(self) -> None:
        """Look whether a record was refused."""
        self._serve(0)

    def flush(self) -> None:
        """Return when every record is with the brokers."""
        with self._explaining("writing"):
            if self._in_batches and self._batches is not None:
                left = self._batches.flush(self._limits.commit)
            else:
                left = self._producer.flush(self._limits.commit)
        self._raise_failure()
        if left:
            raise self._stop(
                EosError(f"{left} records of {self.transactional_id} were not taken in {self._limits.commit:.0f} s.")
            )
        self._client_errors.served()
        self._in_batches = False

    def commit(self, within_seconds: float | None = None) -> None:
        """Decide the transaction; after an error it may be decided all the same, which only the next init knows.

        :param within_seconds: limit of this commit, None for the producer's.
        :raises UndecidedError: the coordinator failed at it in a way that it has no name for.
        """
        if self._in_batches:
            self.flush()
        limit = self._limits.commit if within_seconds is None else within_seconds
        self._until_done(self._producer.commit_transaction, limit, _COMMITTING)
        self._begun_at = None

    def abort(self) -> None:
        """Give up what is open; without effect if nothing is, or if the id is another's by now.

        Raises nothing, since the error that led here says more; where it fails, ``unsettled`` is set.
        """
        self._in_batches = False
        if self._begun_at is None:
            return
        try:
            # After a fatal error librdkafka does nothing more. The next call would only raise it once more, out of a
            # callback, and confluent-kafka then keeps the error for ever, and with its traceback this client.
            if self._fatal is not None:
                raise KafkaException(self._fatal)
            _repeat(self._producer.abort_transaction, self._limits.abort)
        except KafkaException as error:
            self.unsettled = self._explained(error.args[0], "aborting")
        except SystemError:  # as in _explaining
            self.unsettled = self._explained(_NO_REASON, "aborting")
        self._begun_at = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._begun_at is not None

    @property
    def last_offset(self) -> int:
        """Of the record that was appended last, -1 if not reported."""
        return self._deliveries.offset

    @property
    def last_timestamp_ms(self) -> int:
        """Of the same record, milliseconds since the epoch; -1 if not reported.

        The broker's time where the topic's ``message.timestamp.type`` is ``LogAppendTime``.
        """
        return self._deliveries.timestamp_ms

    def _serve(self, seconds: float) -> None:
        with self._explaining("writing"):
            if self._in_batches and self._batches is not None:
                self._batches.serve(seconds)
            else:
                self._producer.poll(seconds)
        self._raise_failure()

    def _await_room(self, deadline: float) -> None:
        """Wait a moment, since the queue is full."""
        self._serve(_POLL_SECONDS)
        if time.monotonic() > deadline:
            raise self._stop(
                EosError(f"The brokers took no record of {self.transactional_id} for {self._limits.commit:.0f} s.")
            )

    def _batches_of(self) -> NativeBatches | None:
        if self._takes_batches and self._batches is None:
            self._batches = NativeBatches.of(self._producer, self._deliveries.refused, self._client_errors)
            self._takes_batches = self._batches is not None
        return self._batches

    def _raise_failure(self, cause: KafkaError | None = None) -> None:
        """Say why a record was refused, if one was.

        :param cause: what ended the producer, where that is known.
        """
        if self._deliveries.failure is not None:
            error, topic = self._deliveries.failure
            if error.code() in _PURGED:
                error = cause or self._fatal_error()
            raise self._stop(self._explained(error, f"writing to topic {topic}", topic))

    def _until_done(self, act: Callable[[float], None], seconds: float, what: str) -> None:
        """Repeat an act that only ran out of time, until its limit."""
        with self._explaining(what):
            _repeat(act, seconds)
        self._client_errors.served()

    @contextlib.contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        """Turn librdkafka's errors into this package's."""
        try:
            yield
        except KafkaException as error:
            cause = self._reason(error.args[0])
            if self._fatal is None:
                with contextlib.suppress(KafkaException, SystemError):
                    self._producer.poll(0)  # a record that was refused is why a transaction cannot be committed
            self._raise_failure(cause)
            raise self._stop(self._explained(cause, what)) from error
        except SystemError as error:
            # confluent-kafka raises a fatal error out of its callbacks, and loses it when another one follows.
            raise self._stop(self._explained(self._fatal_error(), what)) from error

    def _reason(self, error: KafkaError) -> KafkaError:
        """The error itself, or why the client has ended if that is all it says; an end is kept for :meth:`abort`."""
        if error.code() == KafkaError._FATAL:
            error = self._fatal_error()
        if error.fatal():
            self._fatal = error
        return error

    def _fatal_error(self) -> KafkaError:
        try:
            self._producer.abort_transaction(self._limits.abort)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        return _NO_REASON

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
        if code == KafkaError.UNKNOWN and what == _COMMITTING:
            return UndecidedError(
                f"The brokers answered the commit of {self.transactional_id} with {error.str()!r}: eos cannot tell "
                "whether it is committed.",
                remedy="Nothing is lost: try again. The next attempt finds out whether it is committed.",
            )
        if code in _FENCED:
            return FencedError(
                f"Another producer has taken the transactional id {self.transactional_id}; this one stops.",
                remedy="Nothing is lost: follow the attempt that came after this one.",
            )
        if code in _TOO_LARGE:
            return ConfigurationError(
                f"A record for topic {topic} is too large: {error.str()}.",
                expected="at most the topic's max.message.bytes and the producer's message.max.bytes",
                remedy="Raise both (message.max.bytes in the pipeline's producer properties), or make records smaller.",
            )
        if code in _REJECTED:
            return ConfigurationError(
                f"The brokers rejected a record for topic {topic}: {error.str()}.",
                remedy="Correct the record, or the topic's settings: a compacted topic takes no record without a key.",
            )
        if code in NOT_KNOWN:
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
        needs = {
            Resource.TRANSACTIONAL_ID: (self.transactional_id, (Operation.WRITE, Operation.DESCRIBE)),
            Resource.TOPIC: (topic, (Operation.WRITE, Operation.DESCRIBE)),
            Resource.CLUSTER: (CLUSTER_NAME, (Operation.IDEMPOTENT_WRITE,)),  # brokers before 2.8
        }
        what = f"{what}, transactional id {self.transactional_id}"
        return explain(error, what, self._settings, self._client_errors, needs)


def _repeat(call: Callable[[float], None], seconds: float) -> None:
    """Make a call of the client, and again while it says that this may help.

    :param seconds: for so long.
    :raises KafkaException: it has failed, or has not come to its end in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call(max(0.1, min(CALL_SECONDS, deadline - time.monotonic())))
        except KafkaException as error:
            if not _may_help_again(error.args[0]) or time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def _may_help_again(error: KafkaError) -> bool:
    """Whether the same call may succeed later.

    librdkafka calls a conflict with another call retriable, since another thread's call ends. Here calls come one after
    another: the other call is one that was given up, such as a commit that ran out of time, so the conflict lasts.
    """
    return error.retriable() and error.code() != KafkaError._CONFLICT
