"""Fetches records through kafka-python's connections and decodes them here, for Spark's executors and for reads
of batches.

Each fetch stands for itself (KIP-227's sessions are not used), and names the topic by its id where brokers know ids:
another topic of the name is not read on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import kafka.errors
from kafka.future import Future

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.admin.batch_headers import fetch_request
from airflow_eos_provider.kafka.admin.client import Admin, id_of, is_not_known
from airflow_eos_provider.kafka.questions import EARLIEST, not_allowed
from airflow_eos_provider.kafka.read.batch_decoder import Decoder
from airflow_eos_provider.kafka.read.fetched import NO_LOOK, FetchOptions, Look
from airflow_eos_provider.kafka.read.topic_ends import ReplacedTopicError
from airflow_eos_provider.kafka.wire import may_pass, words

#: How much of one partition, and of all together, a fetch returns, bytes; a larger first batch comes whole.
_PARTITION_BYTES = 4 << 20
_FETCH_BYTES = 16 << 20

#: How long the broker holds a fetch behind one that returned nothing, milliseconds. It answers as soon as there is more
#: to read, so this delays nothing.
_WAITING_FETCH_MS = 100

#: Pause before a question that could not be asked, or was not answered, is asked again, seconds.
_PAUSE_SECONDS = 0.02

#: Every broker knows of a topic, and has heard of a change, within this time, seconds.
_NEWS_SECONDS = 10.0

#: Limit of the question where a partition begins, seconds.
_ANSWER_SECONDS = 5.0


class _Fetched(NamedTuple):
    """A partition's part of an answer; ``asked`` is the position that was asked for."""

    asked: int
    answer: Any


class WireFetcher:
    """See :class:`~airflow_eos_provider.kafka.read.fetched.Fetcher`.

    :param topic_id: the topic's id; None if brokers have none.
    """

    def __init__(self, admin: Admin, topic: str, topic_id: str | None, options: FetchOptions) -> None:
        self._admin = admin
        self._wire = admin.wire
        self._topic = topic
        self._topic_id = None if topic_id is None else id_of(topic_id)
        self._options = options
        self._committed = options.isolation == "read_committed"
        self._positions: dict[int, int] = {}
        self._decoders: dict[int, Decoder] = {}
        self._pending: dict[Future, dict[int, int]] = {}
        self._wait_ms = options.fetch_wait_ms
        self._is_stale = False
        self._unknown_since: float | None = None
        self.trouble: str | None = None

    @property
    def is_refused(self) -> bool:
        return False  # a refusal is an error at once

    def moved(self, moved: bool) -> None:
        self.trouble = None

    def assign(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)
        self._wait_ms = self._options.fetch_wait_ms
        for partition in positions:
            self._decoders.setdefault(partition, Decoder(self._topic, partition, self._options))

    def pause(self, partition: int) -> None:
        self._positions.pop(partition, None)

    def look(self, seconds: float) -> Look:
        if not self._positions:
            return NO_LOOK
        what = f"reading topic {self._topic}"
        fetched = self._admin.run(what, self._fetched, time.monotonic() + seconds)
        records: list[Any] = []
        reached: dict[int, int] = {}
        stopped: dict[int, int] = {}
        for partition, (asked, answer) in fetched.items():
            if self._positions.get(partition) != asked:
                continue  # it was assigned anew, or paused, since it was asked for
            if answer.error_code:
                position = self._after_error(partition, kafka.errors.for_code(answer.error_code)(self._topic))
            else:
                aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
                found, position = self._decoders[partition].decode(bytes(answer.records or b""), asked, aborted)
                records += found
                self._unknown_since = None
                if position >= (answer.last_stable_offset if self._committed else answer.high_watermark):
                    stopped[partition] = position
            if position > asked:
                self._positions[partition] = reached[partition] = position
        self._wait_ms = self._options.fetch_wait_ms if reached else max(_WAITING_FETCH_MS, self._options.fetch_wait_ms)
        return Look(records, reached, stopped, bool(reached or stopped))

    def _after_error(self, partition: int, error: Any) -> int:
        """The position at which to go on."""
        position = self._positions[partition]
        if isinstance(error, kafka.errors.OffsetOutOfRangeError):
            return self._beginning(partition, position)
        if isinstance(error, kafka.errors.TopicAuthorizationFailedError):
            operations = (Operation.READ, Operation.DESCRIBE)
            what = f"reading topic {self._topic}"
            raise not_allowed(self._admin.settings, what, operations, Resource.TOPIC, self._topic)
        if not may_pass(error):
            raise self._admin.explain(error, f"reading topic {self._topic}")
        self._later(error)
        if is_not_known(error):
            self._require_topic()
        return position

    def _beginning(self, partition: int, position: int) -> int:
        """Where a partition begins whose records at a position were deleted."""
        what = f"listing the first offsets of {self._topic}"
        first = self._admin.offsets([(self._topic, partition)], EARLIEST, _ANSWER_SECONDS, what)[self._topic, partition]
        if isinstance(first, Exception):
            if not may_pass(first):
                raise self._admin.explain(first, what) from first
            self._is_stale = True
            return position
        if first > position:
            return first
        raise ReplacedTopicError(
            f"Partition {partition} of topic {self._topic} ends before offset {position}, which it had already "
            "reached.",
            remedy="The topic was created again or lost records, so earlier reads of it are out of date.",
        )

    def _require_topic(self) -> None:
        """Check that the topic has not been unknown for long."""
        if self._unknown_since is None:
            self._unknown_since = time.monotonic()
        elif time.monotonic() - self._unknown_since > _NEWS_SECONDS:
            raise EosError(f"The topic {self._topic} went away while it was read.")

    def _later(self, error: Exception) -> None:
        self._is_stale = True
        self.trouble = words(error)

    # On the connections' thread

    async def _fetched(self, deadline: float) -> dict[int, _Fetched]:
        """What the brokers have answered, perhaps to earlier questions; every partition is asked for once at a time."""
        if self._is_stale:
            await self._wire.pause(_PAUSE_SECONDS)
            await self._refresh(deadline)
        self._ask()
        if not self._pending:
            await self._wire.pause(_PAUSE_SECONDS)
            return {}
        await self._any_answer(deadline)
        found: dict[int, _Fetched] = {}
        for future in [each for each in self._pending if each.is_done]:
            asked = self._pending.pop(future)
            error = future.exception or self._error_of(future.value)
            if error is not None:
                if not may_pass(error):
                    raise error
                self._later(error)
                continue
            for topic in future.value.responses:
                for answer in topic.partitions:
                    found[answer.partition_index] = _Fetched(asked[answer.partition_index], answer)
        return found

    @staticmethod
    def _error_of(answer: Any) -> Exception | None:
        return kafka.errors.for_code(answer.error_code)() if answer.error_code else None

    async def _refresh(self, deadline: float) -> None:
        try:
            await self._wire.refresh([self._topic], deadline)
            self._is_stale = False
        except kafka.errors.KafkaError as error:
            if not may_pass(error):
                raise
            self._later(error)

    def _ask(self) -> None:
        """Send a fetch to each leader of partitions that are not asked for."""
        asked = {partition for partitions in self._pending.values() for partition in partitions}
        by_leader: dict[int, dict[int, int]] = defaultdict(dict)
        for partition, position in self._positions.items():
            if partition in asked:
                continue
            leader = self._wire.leader_of(self._topic, partition)
            if leader is None:
                self._later(kafka.errors.LeaderNotAvailableError(f"{self._topic}-{partition} has no leader"))
            else:
                by_leader[leader][partition] = position
        for leader, positions in by_leader.items():
            self._pending[self._wire.ask(self._request(positions), leader)] = positions

    async def _any_answer(self, deadline: float) -> None:
        """Return when a fetch is answered, or the time is over."""
        answered = Future()

        def tell(_: object) -> None:
            if not answered.is_done:
                answered.success(None)

        for future in self._pending:
            future.add_callback(tell)
            future.add_errback(tell)
        try:
            await self._wire.within(answered, deadline)
        except kafka.errors.KafkaTimeoutError:
            return

    def _request(self, positions: Mapping[int, int]) -> Any:
        return fetch_request(
            self._topic,
            positions,
            wait_ms=self._wait_ms,
            partition_bytes=_PARTITION_BYTES,
            most_bytes=_FETCH_BYTES,
            committed=self._committed,
            topic_id=self._topic_id,
        )
