"""The transactional producer under journal and interval runs: every wait is bounded, every error says what it means.

It uses kafka-python's connections. It repeats a call that timed out. After any other error it aborts the transaction.
The abort carries the producer's epoch, so it fences no other producer. If the abort fails, ``unsettled`` says so: then
only the next init, or reading, shows what took effect.
"""

from __future__ import annotations

import contextlib
import random
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import kafka.errors

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Operation, Resource
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS, not_allowed
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import Wire, explained, words
from airflow_eos_provider.kafka.write.compression import CODECS
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, Headers, Record, encode_records
from airflow_eos_provider.kafka.write.sender import MOST_IN_FLIGHT, Sender, is_fencing, topic_of

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

#: Encoders get this as a topic's limit. The producer does not know the limit; the brokers enforce it.
UNBOUNDED = 1 << 30

_COMMITTING = "committing"

#: What a record takes besides key and value, bytes, about.
_RECORD_BYTES = 20

_TOO_LARGE = (kafka.errors.MessageSizeTooLargeError, kafka.errors.RecordListTooLargeError)
_REJECTED = (kafka.errors.InvalidRecordError, kafka.errors.InvalidTimestampError, kafka.errors.PolicyViolationError)
#: Also what the broker says to a transaction that it has given up for its age.
_NOT_OPEN = (kafka.errors.InvalidTxnStateError, kafka.errors.TransactionAbortableError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the steps of a transaction are tried, seconds.

    :param init: it waits for the markers of the id's last transaction, so for their brokers.
    """

    init: float = 60.0
    commit: float = 60.0
    abort: float = 15.0


_USUAL = Limits()


class TransactionExpiredError(EosError):
    """A transaction was open for longer than its timeout, so the broker aborted it. Nothing of it is visible."""


class UndecidedError(EosError):
    """The answer to a commit leaves open whether the transaction is decided; the id's next init settles it."""


@dataclass(frozen=True)
class Options:
    """The producer's settings, from properties with librdkafka's names.

    :param level: of its effort, None for the codec's default.
    :param acknowledge_ms: a broker waits so long for the other copies, milliseconds.
    """

    compression: str = "none"
    level: int | None = None
    batch_bytes: int = 1_000_000
    largest_bytes: int = 1_000_000
    most_bytes: int = 64 << 20
    delivery_seconds: float = 300.0
    acknowledge_ms: int = 30_000
    most_in_flight: int = MOST_IN_FLIGHT

    @classmethod
    def of(cls, properties: Mapping[str, str], timeout_ms: int) -> Self:
        """The options that properties stand for.

        :param timeout_ms: transaction timeout, which bounds each delivery unless the properties do, milliseconds.
        """

        def number(names: str, default: int, least: int, most: int) -> int:
            name = next((each for each in names.split() if each in properties), "")
            text = properties.get(name, str(default))
            try:
                value = int(text)
            except ValueError:
                value = least - 1
            if not least <= value <= most:
                raise ConfigurationError(
                    f"The producer's property {name} is {text!r}.",
                    expected=f"a whole number from {least} to {most}",
                    remedy="Correct it where it is written: in the pipeline's producer properties, in the extra of the "
                    "kafka connection, or in 'client' of the cluster description.",
                )
            return value

        codec = properties.get("compression.type", properties.get("compression.codec", "none"))
        if codec not in CODECS:
            raise ConfigurationError(
                f"The producer's compression.type is {codec!r}.", expected=f"one of {', '.join(CODECS)}"
            )
        number("retries message.send.max.retries", 1, 1, 2**31 - 1)  # an answer may be lost: the batch is sent again
        level = number("compression.level", -1, -1, 22)
        largest = number("message.max.bytes", cls.largest_bytes, 1_000, 1_000_000_000)
        delivery_ms = number("delivery.timeout.ms message.timeout.ms", timeout_ms, 0, 2**31 - 1)
        queue_kib = number("queue.buffering.max.kbytes", cls.most_bytes >> 10, 1, 2**31 - 1)
        return cls(
            compression=codec,
            level=None if level < 0 else level,
            batch_bytes=min(number("batch.size", cls.batch_bytes, 1, 2**31 - 1), largest),
            largest_bytes=largest,
            most_bytes=queue_kib << 10,
            delivery_seconds=(delivery_ms or timeout_ms) / 1000,
            acknowledge_ms=number("request.timeout.ms", cls.acknowledge_ms, 1, 900_000),
            most_in_flight=number(
                "max.in.flight.requests.per.connection max.in.flight", MOST_IN_FLIGHT, 1, MOST_IN_FLIGHT
            ),
        )


class TransactionalProducer:
    """The holder of one transactional id, until another one takes it. For one thread at a time.

    What the brokers are told, and when it is told again, is in :mod:`~airflow_eos_provider.kafka.write.sender`.

    Errors of every method: :class:`FencedError` when another holder has taken the id, :class:`TransactionExpiredError`
    when the broker has given the transaction up, :class:`ConfigurationError` with the topic, id or rule that is at
    fault, :class:`EosError` and :class:`UnreachableError` for the rest. After an error the open transaction is aborted.
    A producer that is dropped or closed leaves that to the broker.

    :param timeout_ms: transaction timeout, milliseconds.
    :param properties: further properties, with librdkafka's names (:class:`Options`).
    :ivar unsettled: why a transaction that failed could not be aborted: it may have taken effect, and this producer
        writes no more. None if each is known to be committed or aborted.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        timeout_ms: int,
        properties: Mapping[str, str] | None = None,
        limits: Limits = _USUAL,
    ) -> None:
        self.transactional_id = transactional_id
        self.unsettled: EosError | None = None
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._limits = limits
        wanted = {**settings.properties, **(properties or {})}
        configured = {name: value for name, value in wanted.items() if name not in _SET_HERE}
        self.options = Options.of(configured, timeout_ms)
        self._wire = Wire(KafkaSettings(configured), connect_seconds=CONNECT_SECONDS)
        weakref.finalize(self, self._wire.close).atexit = False
        self._sender = Sender(
            self._wire,
            transactional_id,
            timeout_ms=timeout_ms,
            most_bytes=self.options.most_bytes,
            delivery_seconds=self.options.delivery_seconds,
            acknowledge_ms=self.options.acknowledge_ms,
            most_in_flight=self.options.most_in_flight,
        )
        self._begun_at: float | None = None
        self._loose: dict[tuple[str, int], _Loose] = {}
        self._counts: dict[str, int] = {}
        self._turn = random.randrange(1 << 16)

    def init(self) -> None:
        """Take the id: whatever its last holder left open is aborted, what it decided is in every partition."""
        with self._explaining("taking the id"):
            self._wire.run(self._sender.init, self._by(self._limits.init))

    def begin(self) -> None:
        """Begin a transaction."""
        self._loose.clear()
        self._begun_at = time.monotonic()
        with self._explaining("beginning a transaction"):
            self._wire.run(self._sender.begin, self._by(self._limits.init))

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        if topic not in self._counts:
            with self._explaining(f"writing to topic {topic}", topic):
                count = self._wire.run(self._sender.count_partitions, topic, self._by(self._limits.commit))
            self._counts[topic] = count
        return self._counts[topic]

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
        """Take one record; it is sent with others of its partition, with :meth:`flush` at the latest.

        :param partition: -1 for the one that the key's hash names; without a key, any.
        :param timestamp_ms: since the epoch, 0 for now.
        """
        if partition < 0:
            count = self.partitions(topic)
            partition = self._turn % count if key is None else partition_of(key, count)
        loose = self._loose.setdefault((topic, partition), _Loose())
        size = len(key or b"") + len(value or b"") + _RECORD_BYTES
        if loose.records and loose.size + size > self.options.batch_bytes:
            self._send_loose()
            loose = self._loose.setdefault((topic, partition), _Loose())
        loose.records.append((key, value, headers, timestamp_ms or time.time_ns() // 1_000_000))
        loose.size += size

    def send(self, batches: Sequence[EncodedBatch]) -> None:
        """Send batches, behind the records before them; waits while too much is on its way."""
        self._send_loose()
        self._take(batches)

    def flush(self) -> None:
        """Return when every record is with the brokers."""
        self._flush(self._limits.commit)

    def commit(self, within_seconds: float | None = None) -> None:
        """Decide the transaction; after an error it may be decided all the same, which only the next init knows.

        :param within_seconds: limit of this commit, None for the producer's.
        """
        limit = self._limits.commit if within_seconds is None else within_seconds
        deadline = self._by(limit)
        self._flush(limit)
        with self._explaining(_COMMITTING):
            self._wire.run(self._sender.commit, deadline)
        self._begun_at = None

    def abort(self) -> None:
        """Give up what is open; without effect if nothing is, or if the id is another's by now.

        Raises nothing, since the error that led here says more; where it fails, ``unsettled`` is set.
        """
        if self._begun_at is None:
            return
        self._loose.clear()
        try:
            self._wire.run(self._sender.abort, self._by(self._limits.abort))
        except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
            self.unsettled = self._explained(error, "aborting")
        self._begun_at = None

    def close(self) -> None:
        """End the connections at once. An open transaction stays open until the broker gives it up."""
        self._wire.close()

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._begun_at is not None

    @property
    def last_offset(self) -> int:
        """Of the record that was appended last, -1 if unknown."""
        return self._sender.last_offset

    @property
    def last_timestamp_ms(self) -> int:
        """Of the same record, milliseconds since the epoch.

        The broker's time where the topic's ``message.timestamp.type`` is ``LogAppendTime``.
        """
        return self._sender.last_timestamp_ms

    def _send_loose(self) -> None:
        if not self._loose:
            return
        loose, self._loose = self._loose, {}
        self._turn += 1  # records without a key go to another partition
        codec = self.options.compression
        self._take([encode_records(*place, each.records, codec, UNBOUNDED) for place, each in loose.items()])

    def _take(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            if len(batch.data) > self.options.largest_bytes:
                raise self._stop(
                    _too_large(batch.topic, f"{len(batch.data)} bytes in a batch of {batch.count} records")
                )
        limit = self._limits.commit
        topic = batches[0].topic if batches else ""
        with self._explaining(f"writing to topic {topic}", topic):
            try:
                self._wire.run(self._sender.take, batches, limit)
            except kafka.errors.KafkaTimeoutError:
                raise self._stop(
                    EosError(f"The brokers took no record of {self.transactional_id} for {limit:.0f} s{self._last}.")
                ) from None

    def _flush(self, limit: float) -> None:
        self._send_loose()
        with self._explaining("writing"):
            if left := self._wire.run(self._sender.flush, self._by(limit)):
                raise self._stop(
                    EosError(f"{left} records of {self.transactional_id} were not taken in {limit:.0f} s{self._last}.")
                )

    @property
    def _last(self) -> str:
        """The last error, in parentheses."""
        last = self._sender.last_error
        return f" ({words(last)})" if last else ""

    @staticmethod
    def _by(seconds: float) -> float:
        return time.monotonic() + seconds

    @contextlib.contextmanager
    def _explaining(self, what: str, topic: str = "") -> Iterator[None]:
        """Turn kafka-python's errors into this package's."""
        try:
            yield
        except (kafka.errors.KafkaError, OSError) as error:
            raise self._stop(self._explained(error, what, topic)) from error

    def _stop(self, error: EosError) -> EosError:
        self.abort()
        return error

    def _explained(self, error: Exception, what: str, topic: str = "") -> EosError:
        topic = topic_of(error) or topic
        if topic and what == "writing":
            what = f"writing to topic {topic}"
        about = f"{what}, transactional id {self.transactional_id}"
        return (
            self._about_transaction(error, what)
            or self._about_record(error, topic)
            or self._about_right(error, about, topic)
            or explained(error, about, self._settings)
        )

    def _about_transaction(self, error: Exception, what: str) -> EosError | None:
        open_for = 0.0 if self._begun_at is None else time.monotonic() - self._begun_at
        if open_for * 1000 >= self._timeout_ms and (is_fencing(error) or isinstance(error, _NOT_OPEN)):
            return TransactionExpiredError(
                f"The transaction of {self.transactional_id} was open for {open_for:.0f} s; the broker aborted it.",
                expected=f"at most transaction_timeout_ms, {self._timeout_ms} ms",
                remedy="Plan more, smaller slices, or raise transaction_timeout_ms.",
            )
        if isinstance(error, kafka.errors.UnknownError) and what == _COMMITTING:
            return UndecidedError(
                f"The brokers answered the commit of {self.transactional_id} with {words(error)!r}: eos cannot tell "
                "whether it is committed.",
                remedy="Nothing is lost: try again. The next attempt finds out whether it is committed.",
            )
        if is_fencing(error):
            return FencedError(
                f"Another producer has taken the transactional id {self.transactional_id}; this one stops.",
                remedy="Nothing is lost: follow the attempt that came after this one.",
            )
        if isinstance(error, kafka.errors.InvalidTransactionTimeoutError):
            return ConfigurationError(
                f"The brokers do not allow a transaction timeout of {self._timeout_ms} ms.",
                expected="at most their transaction.max.timeout.ms",
                remedy="Lower the pipeline's transaction_timeout_ms.",
            )
        return None

    @staticmethod
    def _about_record(error: Exception, topic: str) -> EosError | None:
        if isinstance(error, _TOO_LARGE):
            return _too_large(topic, words(error))
        if isinstance(error, _REJECTED):
            return ConfigurationError(
                f"The brokers rejected a record for topic {topic}: {words(error)}.",
                remedy="Correct the record, or the topic's settings: a compacted topic takes no record without a key.",
            )
        if isinstance(error, kafka.errors.UnknownTopicOrPartitionError):
            return ConfigurationError(
                f"There is no topic {topic}, or no such partition in it: {words(error)}.",
                remedy="Create the topic, or correct its name.",
            )
        return None

    def _about_right(self, error: Exception, what: str, topic: str) -> EosError | None:
        write = (Operation.WRITE, Operation.DESCRIBE)
        needs = {
            kafka.errors.TransactionalIdAuthorizationFailedError: (
                Resource.TRANSACTIONAL_ID,
                self.transactional_id,
                write,
            ),
            kafka.errors.TopicAuthorizationFailedError: (Resource.TOPIC, topic, write),
            kafka.errors.ClusterAuthorizationFailedError: (  # brokers before 2.8
                Resource.CLUSTER,
                CLUSTER_NAME,
                (Operation.IDEMPOTENT_WRITE,),
            ),
        }
        resource, name, operations = needs.get(type(error), (Resource.TOPIC, "", write))
        return not_allowed(self._settings, what, operations, resource, name) if name else None


class _Loose:
    """Single records of a partition that are not encoded yet."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size = 0


def _too_large(topic: str, how: str) -> ConfigurationError:
    return ConfigurationError(
        f"A record for topic {topic} is too large, or a batch of records: {how}.",
        expected="at most the topic's max.message.bytes and the producer's message.max.bytes",
        remedy="Raise both (message.max.bytes in the pipeline's producer properties), make records smaller, or lower "
        "the producer's batch.size.",
    )
