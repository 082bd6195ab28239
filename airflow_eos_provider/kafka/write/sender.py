"""One transactional id's requests: InitProducerId, AddPartitionsToTxn, Produce and EndTxn.

The rules come from KIP-98 (transactions, sequences), KIP-360 (a new epoch after an abort), KIP-447 (a fenced producer
learns it) and the first part of KIP-890. The protocol is that of ``transaction.version`` 0 and 1, which brokers with
version 2 accept as well:

* A partition is added to the transaction before the first record is sent to it.
* Each partition's batches are numbered by the sequences of their records, from 0 on for each producer id and epoch. At
  most five batches of a partition are on their way, one in a request. A batch is kept until it is acknowledged.
* A partition that does not know the producer accepts any first sequence (``ProducerAppendInfo``). So the second batch
  waits until the first is acknowledged. Otherwise the broker could accept the second and then refuse the first.
* If an answer is lost, or another broker leads the partition, or copies are missing, the same bytes are sent again with
  the same sequences: in their order, one at a time, while no other batch of the partition is in flight. A broker that
  has already appended them acknowledges them again.
* If the coordinator moves or is loading, the producer looks it up again. If the last transaction's markers are not yet
  in every partition, it asks again.
* Every other error ends the transaction: the producer is fenced, a sequence is missing, or a broker refuses a record.
* After an abort the producer takes the id's next epoch, so sequences start at 0 again (KIP-360).
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from airflow_eos_provider.kafka.wire import MAY_PASS, NotSentError, Wire, is_refusal, may_pass
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, seal

#: Batches of a partition, and requests to a broker, on their way: a broker remembers as many sequences (KIP-98).
MOST_IN_FLIGHT = 5

#: Bytes of one request, if it has more than one batch; brokers take 100 MB (socket.request.max.bytes).
_REQUEST_BYTES = 8 << 20

#: The last versions of the protocol before ``transaction.version`` 2 (KIP-890, part 2).
_PRODUCE, _ADD_PARTITIONS, _END, _INIT = 11, 3, 4, 5

_ALL_IN_SYNC = -1

#: Between two attempts, seconds: the markers of a commit take a few milliseconds, a new leader takes seconds.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5

#: A broker may not have heard yet of a topic that another one knows, seconds.
_UNKNOWN_TOPIC_SECONDS = 10.0

#: Limit of one question about leaders, seconds.
_REFRESH_SECONDS = 10.0

_MAX_TIMESTAMP_AT = 35
_LAST_SEQUENCE = 0x7FFFFFFF

_FENCED = (kafka.errors.InvalidProducerEpochError, kafka.errors.ProducerFencedError)


class Sender:
    """What the brokers are told under one transactional id. On the connections' thread only.

    :param timeout_ms: transaction timeout, milliseconds.
    :param most_bytes: batches that are kept until they are acknowledged, bytes; a larger one is kept alone.
    :param acknowledge_ms: a broker waits so long for the other copies of a batch, milliseconds.
    :ivar failure: why the transaction cannot be committed, None if nothing speaks against it.
    :ivar last_error: the last error that was not final, None after an acknowledgement.
    :ivar last_offset: of the record that was appended last, -1 if unknown.
    :ivar last_timestamp_ms: of the same record.
    """

    def __init__(
        self,
        wire: Wire,
        transactional_id: str,
        *,
        timeout_ms: int,
        most_bytes: int,
        delivery_seconds: float,
        acknowledge_ms: int,
        most_in_flight: int = MOST_IN_FLIGHT,
    ) -> None:
        self.failure: Exception | None = None
        self.last_error: Exception | None = None
        self.last_offset = -1
        self.last_timestamp_ms = -1
        self._wire = wire
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._most_bytes = most_bytes
        self._delivery_seconds = delivery_seconds
        self._acknowledge_ms = acknowledge_ms
        self._window = most_in_flight
        self._producer = (-1, -1)
        self._coordinator: int | None = None
        self._transaction = 0
        self._is_registered = False
        self._is_decided = False
        self._needs_epoch = False
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._requests: defaultdict[int, int] = defaultdict(int)
        self._bytes = 0
        self._records = 0
        self._order = 0
        self._last_order = -1
        self._changed = Future()
        self._pause = _SHORTEST_PAUSE
        self._looks_again = False
        self._missing_since: dict[str, float] = {}

    # What the producer asks for

    async def init(self, deadline: float) -> None:
        """Take the id: InitProducerId fences its holder, aborts what that left open, and waits for all markers."""
        await self._wire.connected(deadline)
        await self._take_id((-1, -1), deadline)

    async def begin(self, deadline: float) -> None:
        """Begin a transaction; the brokers hear of it with its first partition."""
        if self._needs_epoch:
            await self._take_id(self._producer, deadline)
        self._transaction += 1
        self.failure = self.last_error = None
        self._is_registered = self._is_decided = False
        self._missing_since.clear()
        for partition in self._partitions.values():
            partition.is_registered = False

    async def count_partitions(self, topic: str, deadline: float) -> int:
        """How many partitions a topic has."""
        while (found := self._wire.partitions_of(topic)) is None:
            await self._refresh([topic], deadline)
            if time.monotonic() >= deadline:
                raise self.last_error or kafka.errors.KafkaTimeoutError(f"nothing is known of topic {topic}")
        return found

    async def take(self, batches: Sequence[EncodedBatch], seconds: float) -> None:
        """Number and send batches; returns when they are kept here, which may need room."""
        transaction = self._transaction
        self._raise_failure()
        await self._register({(batch.topic, batch.partition) for batch in batches}, time.monotonic() + seconds)
        for batch in batches:
            while self._bytes and self._bytes + len(batch.data) > self._most_bytes:
                self._send_waiting()
                before = self._bytes
                deadline = time.monotonic() + seconds
                while self._bytes >= before:
                    await self._change(deadline)
                    self._require(transaction)
            self._require(transaction)
            self._keep(batch)
        self._send_waiting()

    async def flush(self, deadline: float) -> int:
        """Return when every batch is acknowledged.

        :returns: how many records are not, in time.
        """
        transaction = self._transaction
        self._send_waiting()
        self._raise_failure()
        while self._records:
            try:
                await self._change(deadline)
            except kafka.errors.KafkaTimeoutError:
                self._raise_failure()
                return self._records
            self._require(transaction)
        return 0

    async def commit(self, deadline: float) -> None:
        """Decide the transaction. One without a partition is none: the brokers have not heard of it."""
        self._raise_failure()
        if self._is_registered:
            self._is_decided = True
            await self._end(True, deadline)
        self._is_registered = False

    async def abort(self, deadline: float) -> None:
        """Abort the transaction. Nothing more is sent; EndTxn waits for the answers to batches in flight."""
        self._transaction += 1
        self._needs_epoch = True
        self.failure = self.failure or kafka.errors.IllegalStateError("the transaction was given up")
        for partition in self._partitions.values():
            partition.waiting.clear()
            partition.again.clear()
        answered_by = (time.monotonic() + deadline) / 2
        while any(partition.flying for partition in self._partitions.values()):
            try:
                await self._wire.within(self._changed, answered_by)
            except kafka.errors.KafkaTimeoutError:
                break
        self._partitions, self._bytes, self._records = {}, 0, 0
        if not self._is_registered:
            return
        try:
            await self._end(False, deadline)
        except kafka.errors.InvalidTxnStateError:
            if self._is_decided:
                raise
        self._is_registered = False

    # The coordinator

    async def _take_id(self, producer: tuple[int, int], deadline: float) -> None:
        """Take the id's next epoch; only if it is still this producer's, where there is one (KIP-360)."""

        def request() -> Any:
            return InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
                max_version=_INIT,
            )

        answer = await self._ask(request, deadline, _check_code)
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._partitions = {}
        self._needs_epoch = False

    async def _register(self, places: Iterable[tuple[str, int]], deadline: float) -> None:
        transaction = self._transaction
        partitions = [self._partitions.setdefault(place, _Partition(*place)) for place in sorted(places)]
        new = [partition for partition in partitions if not partition.is_registered]
        if not new:
            return
        for partition in new:
            count = await self.count_partitions(partition.topic, deadline)
            if partition.number >= count:
                raise _about(kafka.errors.UnknownTopicOrPartitionError, partition.topic, f"it has {count} partitions")
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for partition in new:
            topics[partition.topic].append(partition.number)

        def request() -> Any:
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer[0],
                v3_and_below_producer_epoch=self._producer[1],
                v3_and_below_topics=[topic(name=name, partitions=numbers) for name, numbers in topics.items()],
                max_version=_ADD_PARTITIONS,
            )

        self._require(transaction)
        self._is_registered = True  # perhaps, from the first attempt on
        await self._ask(request, deadline, _check_partitions)
        self._require(transaction)
        for partition in new:
            partition.is_registered = True

    async def _end(self, committed: bool, deadline: float) -> None:
        def request() -> Any:
            return EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                committed=committed,
                max_version=_END,
            )

        await self._ask(request, deadline, _check_code)

    async def _ask(self, request: Callable[[], Any], deadline: float, check: Callable[[Any], None]) -> Any:
        """Ask the coordinator, and again while the answer is only "not now"."""
        pause = _SHORTEST_PAUSE
        began, transaction = time.monotonic(), self._transaction
        while True:
            self._require(transaction)  # an aborted transaction's call must not commit the next one
            try:
                if self._coordinator is None:
                    self._coordinator = await self._wire.coordinator(self._id, deadline)
                answer = await self._wire.answer(request(), self._coordinator, deadline)
                check(answer)
            except kafka.errors.KafkaError as error:
                if not may_pass(error) or time.monotonic() + pause >= deadline:
                    raise
                if isinstance(error, kafka.errors.UnknownTopicOrPartitionError):
                    if time.monotonic() - began > _UNKNOWN_TOPIC_SECONDS:
                        raise
                elif not isinstance(error, kafka.errors.ConcurrentTransactionsError):
                    self._coordinator = None
            else:
                return answer
            await self._wire.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    # The partitions' leaders

    def _keep(self, batch: EncodedBatch) -> None:
        partition = self._partitions[batch.topic, batch.partition]
        seal(batch, *self._producer, partition.sequence)
        partition.sequence = (partition.sequence + batch.count) & _LAST_SEQUENCE
        partition.waiting.append(_Kept(batch, self._order, time.monotonic() + self._delivery_seconds))
        self._order += 1
        self._bytes += len(batch.data)
        self._records += batch.count

    def _send_waiting(self) -> None:
        """Send every batch that may be sent now."""
        if self.failure is not None:
            return
        by_leader: defaultdict[int, list[_Partition]] = defaultdict(list)
        for partition in self._partitions.values():
            if partition.may_send(self._window):
                leader = self._wire.leader_of(partition.topic, partition.number)
                if leader is None:
                    partition.is_held = True
                    self._look_again()
                else:
                    by_leader[leader].append(partition)
        for leader, partitions in by_leader.items():
            while partitions and self._requests[leader] < MOST_IN_FLIGHT and self._send_to(leader, partitions):
                partitions = [each for each in partitions if each.may_send(self._window)]

    def _send_to(self, leader: int, partitions: list[_Partition]) -> bool:
        """Send one request, with the next batch of each partition if they are not too large together."""
        sent: list[tuple[_Partition, _Kept]] = []
        size = 0
        while partitions and (not sent or size + len(partitions[0].waiting[0].batch.data) <= _REQUEST_BYTES):
            partition = partitions.pop(0)
            kept = partition.waiting[0]
            size += len(kept.batch.data)
            sent.append((partition, kept))
        partitions += [partition for partition, _ in sent]
        try:
            request = produce_request((kept.batch for _, kept in sent), self._id, self._acknowledge_ms)
            future = self._wire.send(request, leader)
        except NotSentError as error:
            if is_refusal(error.reason):
                self._fail(error.reason)
            for partition, _ in sent:
                partition.is_held = True
            self._look_again()
            return False
        for partition, kept in sent:
            partition.waiting.popleft()
            partition.flying.append(kept)
            kept.tries += 1
        self._requests[leader] += 1
        self._start(self._answered, leader, sent, future)
        return True

    async def _answered(self, leader: int, sent: Sequence[tuple[_Partition, _Kept]], future: Future) -> None:
        answers: dict[tuple[str, int], Any] = {}
        lost: Exception = kafka.errors.KafkaConnectionError("the answer lacks a partition")
        try:
            response = await future
            answers = {
                (each.name, part.index): part for each in response.responses for part in each.partition_responses
            }
        except Exception as error:  # any error: there was no answer
            lost = error
        self._requests[leader] -= 1
        for partition, kept in sent:
            answer = answers.get((partition.topic, partition.number))
            partition.flying.remove(kept)
            if self._partitions.get((partition.topic, partition.number)) is not partition:
                continue  # of a transaction that was given up
            if answer is None:
                self._failed(partition, kept, lost)
            elif answer.error_code in (0, kafka.errors.DuplicateSequenceNumberError.errno):
                partition.is_known = True
                self._acknowledged(kept, answer)
            else:
                self._failed(partition, kept, _refused(answer, partition.topic))
            partition.put_back()
        self._tell()
        self._send_waiting()

    def _acknowledged(self, kept: _Kept, answer: Any) -> None:
        self._bytes -= len(kept.batch.data)
        self._records -= kept.batch.count
        self._pause = _SHORTEST_PAUSE
        self.last_error = None
        if kept.order > self._last_order:
            self._last_order = kept.order
            self.last_offset = answer.base_offset + kept.batch.count - 1 if answer.base_offset >= 0 else -1
            (newest,) = struct.unpack_from(">q", kept.batch.data, _MAX_TIMESTAMP_AT)
            self.last_timestamp_ms = newest if answer.log_append_time_ms < 0 else answer.log_append_time_ms

    def _failed(self, partition: _Partition, kept: _Kept, error: Exception) -> None:
        self.last_error = error
        # A batch before it failed and will be sent again: this one is only early.
        is_early = isinstance(error, kafka.errors.OutOfOrderSequenceNumberError) and partition.has_before(kept)
        again = isinstance(error, (*MAY_PASS, OSError)) and not is_refusal(error)
        if again or is_early:
            partition.again.append(kept)
            partition.is_held = True
            self._look_again()
        else:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
        self._tell()

    def _look_again(self) -> None:
        if not self._looks_again:
            self._looks_again = True
            self._start(self._send_later)

    async def _send_later(self) -> None:
        """After a pause, ask who leads the partitions that were held back, and send."""
        try:
            await self._wire.pause(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            held = [partition for partition in self._partitions.values() if partition.is_held]
            topics = {partition.topic for partition in held}
            await self._refresh(topics, time.monotonic() + _REFRESH_SECONDS)
        finally:
            self._looks_again = False
        for partition in held:
            partition.is_held = False
        self._send_waiting()
        if any(partition.is_held for partition in self._partitions.values()):  # since the question
            self._look_again()

    async def _refresh(self, topics: Collection[str], deadline: float) -> None:
        """Ask once who leads the partitions of topics. A topic is missing only if a broker answers so."""
        try:
            await self._wire.refresh(topics, deadline)
        except kafka.errors.KafkaError as error:
            if not may_pass(error):
                raise
            self.last_error = error
        else:
            for topic in topics:
                self._require_topic(topic)
        if any(self._wire.partitions_of(topic) is None for topic in topics):
            await self._wire.pause(_SHORTEST_PAUSE)

    def _require_topic(self, topic: str) -> None:
        """Check that a topic may be seen, and that it has not been missing for long."""
        if self._wire.is_hidden(topic):
            raise _about(kafka.errors.TopicAuthorizationFailedError, topic)
        if self._wire.partitions_of(topic) is not None:
            self._missing_since.pop(topic, None)
        elif time.monotonic() - self._missing_since.setdefault(topic, time.monotonic()) > _UNKNOWN_TOPIC_SECONDS:
            raise _about(kafka.errors.UnknownTopicOrPartitionError, topic)

    # Waiting

    def _start(self, act: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Begin what nobody waits for; an error of it ends the transaction."""

        async def run() -> None:
            try:
                await act(*arguments)
            except Exception as error:
                self._fail(error)

        self._wire.start(run)

    async def _change(self, deadline: float) -> None:
        """Return when a batch was acknowledged or has failed."""
        self._raise_failure()
        oldest = min((partition.deadline for partition in self._partitions.values()), default=deadline)
        try:
            await self._wire.within(self._changed, min(deadline, oldest))
        except kafka.errors.KafkaTimeoutError:
            if oldest <= deadline:
                self._fail(self.last_error or kafka.errors.KafkaTimeoutError("no answer"))
            self._raise_failure()
            raise
        self._raise_failure()

    def _tell(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.success(None)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _require(self, transaction: int) -> None:
        """Check that a transaction was not given up while something waited: a signal may have ended the waiting."""
        if transaction != self._transaction:
            raise kafka.errors.IllegalStateError("the transaction was given up")


class _Kept:
    """A batch that is not acknowledged."""

    __slots__ = ("batch", "deadline", "order", "tries")

    def __init__(self, batch: EncodedBatch, order: int, deadline: float) -> None:
        self.batch = batch
        self.order = order
        self.deadline = deadline
        self.tries = 0


class _Partition:
    """A partition's batches: not sent, on their way, and to be sent again when nothing is on its way."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.sequence = 0
        self.is_registered = False
        self.is_known = False
        self.is_held = False
        self.waiting: deque[_Kept] = deque()
        self.flying: deque[_Kept] = deque()
        self.again: list[_Kept] = []

    @property
    def deadline(self) -> float:
        """Of its oldest batch."""
        return min((each.deadline for each in (*self.flying, *self.again, *self.waiting)), default=float("inf"))

    def may_send(self, window: int) -> bool:
        if not self.waiting or self.is_held or self.again or len(self.flying) >= window:
            return False
        return not self.flying or (self.is_known and self.flying[0].tries == 1 and self.waiting[0].tries == 0)

    def has_before(self, kept: _Kept) -> bool:
        """Whether a batch before this one is not acknowledged."""
        return any(each.order < kept.order for each in (*self.flying, *self.again))

    def put_back(self) -> None:
        if self.again and not self.flying:
            self.waiting.extendleft(sorted(self.again, key=lambda kept: kept.order, reverse=True))
            self.again.clear()


def produce_request(batches: Iterable[EncodedBatch], transactional_id: str | None, acknowledge_ms: int) -> Any:
    """A request that is answered when all in-sync replicas have the batches."""
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    topic = ProduceRequest.TopicProduceData
    for batch in batches:
        topics[batch.topic].append(topic.PartitionProduceData(index=batch.partition, records=batch.data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_IN_SYNC,
        timeout_ms=acknowledge_ms,
        topic_data=[topic(name=name, partition_data=parts) for name, parts in topics.items()],
        max_version=_PRODUCE,
    )


def is_fencing(error: Exception) -> bool:
    """Whether another producer has taken the id, or the coordinator has taken it away."""
    return isinstance(error, _FENCED)


def topic_of(error: Exception) -> str:
    """The topic that an error is about, empty if none."""
    return str(getattr(error, "eos_topic", ""))


def _about(kind: type[Exception], topic: str, text: str = "") -> Exception:
    error = kind(text or topic)
    error.eos_topic = topic  # type: ignore[attr-defined]
    return error


def _refused(answer: Any, topic: str) -> Exception:
    texts = [answer.error_message, *(each.batch_index_error_message for each in answer.record_errors)]
    return _about(kafka.errors.for_code(answer.error_code), topic, "; ".join(text for text in texts if text))


def _check_code(answer: Any) -> None:
    if answer.error_code:
        raise kafka.errors.for_code(answer.error_code)()


def _check_partitions(answer: Any) -> None:
    """Raise the error that decides: others of the same request were not attempted, or can be asked for again."""
    errors = [
        _about(kafka.errors.for_code(partition.partition_error_code), topic.name)
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
        if partition.partition_error_code not in (0, kafka.errors.OperationNotAttemptedError.errno)
    ]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, MAY_PASS))
