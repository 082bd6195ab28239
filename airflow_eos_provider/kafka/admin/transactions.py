"""Transactions as the brokers report them. Only this package (``coordinators``, ``fencing``, ``open_transactions``,
``acls`` and the others) knows wire messages.

confluent-kafka has no call for transactions, so these go through kafka-python 3: its connections, its coordinator
look-up and its message classes. The answers are read here, because its own readers give up at the first unknown id and
at a state of a broker that is younger than they are.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import kafka.errors
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin.transactions import (
    ListTransactionsRequest,
)

from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    ReadTimeoutError,
    RefusedError,
    UnreachableError,
)
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.kafka.admin.acls import create_acls, delete_acls, read_acls
from airflow_eos_provider.kafka.admin.batch_headers import fetch, headers
from airflow_eos_provider.kafka.admin.coordinators import (
    coordinators_of,
    described,
    loaded_coordinators,
    one_id_for_each,
)
from airflow_eos_provider.kafka.admin.fencing import WINDOW, Fenced, Round, fence_round
from airflow_eos_provider.kafka.admin.open_transactions import (
    HeldLook,
    HeldOpen,
    WritingLook,
    held_open,
    may_write_marker,
    producers_of,
    write_abort_marker,
    writing,
)
from airflow_eos_provider.kafka.admin.partition_writers import PartitionWriters, Progress
from airflow_eos_provider.kafka.admin.rights import broker_version, may_describe, may_join, may_write
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS, not_allowed
from airflow_eos_provider.kafka.quiet import quiet_kafka_python
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import Manager, explained, is_refusal, words

__all__ = ["ActiveProducer", "Fenced", "TransactionDescription", "TransactionListing", "TransactionsClient"]

T = TypeVar("T")

#: ListTransactions takes a pattern from this version on (Kafka 4.1, KIP-1152).
_LIST_WITH_PATTERN = 2

_PAUSE_SECONDS = 0.2

#: Transaction timeout that fencing leaves behind, milliseconds. Java's Admin sends 1, but a coordinator waits for its
#: replicas no longer than that: with three brokers it refused most ids for many seconds.
FENCE_TIMEOUT_MS = 30_000

#: Between two rounds of fencing: the markers of an aborted transaction take a few milliseconds, a coordinator that
#: moves takes seconds.
_FENCE_PAUSE_SECONDS = 0.02

#: ACLs of one request. A broker compares each one to delete with all that there are: for 2,000 it may take over 8 s.
_ACLS_AT_ONCE = 200


class TransactionListing(NamedTuple):
    """One transactional id that some broker coordinates."""

    transactional_id: str
    state: TransactionState
    producer_id: int


class TransactionDescription(NamedTuple):
    """What a transactional id's coordinator knows.

    ``timeout_ms`` is the transaction timeout of its last producer; ``started_at_ms`` when its open transaction began by
    the broker's clock, None if none is open; ``partitions`` are the topic partitions in it. ``last_started_at_ms`` is
    also that of one that has ended; None if this coordinator knows of none.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int | None
    partitions: tuple[tuple[str, int], ...]
    last_started_at_ms: int | None = None


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader remembers: idempotent or transactional, not plain.

    ``last_timestamp_ms`` is of its last record or marker, -1 if unknown; ``transaction_start_offset`` where its open
    transaction begins in this partition, None if none is open.
    """

    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


class TransactionsClient:
    """Looks at transactions, and fences; a context manager.

    Each method raises :class:`UnreachableError` where a broker does not answer, so that the answer would not be whole,
    :class:`ConfigurationError` where the principal may not ask, and :class:`EosError` for another answer.

    :param timeout_seconds: limit of each call, momentary refusals of a coordinator that moves included.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_seconds: float = 15.0) -> None:
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._admin: Any = None
        self._quiet = ExitStack()

    def __enter__(self) -> Self:
        self._admin = self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def list(self, prefix: str = "", *, open_only: bool = False) -> tuple[TransactionListing, ...]:
        """All transactional ids that begin with ``prefix``, in their order; the brokers forget one after 7 idle days.

        :param open_only: only those with an open transaction, chosen by the brokers: of 50,000 ids they send a few. An
            open state that this version does not know is left out.
        """
        states = [str(state) for state in TransactionState if state.is_open] if open_only else []
        return self._run(lambda admin: _list(admin, prefix, states), "listing transactions")

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What the coordinators know of these ids; unknown ones are absent."""
        wanted = sorted(set(transactional_ids))
        return self._run(lambda admin: _describe(admin, wanted), "describing transactions") if wanted else {}

    def open_transactions(self, prefix: str) -> tuple[str, ...]:
        """The transactional ids that begin with ``prefix`` and have a transaction open or not yet ended everywhere."""
        return tuple(listed.transactional_id for listed in self.list(prefix) if listed.state.is_open)

    def fence(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int = FENCE_TIMEOUT_MS,
        timeout_seconds: float | None = None,
        on_refused: Callable[[Collection[str]], None] = lambda transactional_ids: None,
    ) -> dict[str, Fenced]:
        """Shut out every producer that now has one of these ids; an open transaction of it is aborted.

        Returns when every id has its answer, which a coordinator gives only when all markers of the id's last
        transaction, committed or aborted, are in their partitions. An id that the brokers do not know is created and
        stays with them for seven idle days. May be repeated, also after an error.

        :param timeout_ms: the id's new transaction timeout, milliseconds; a producer that takes the id sets its own.
        :param timeout_seconds: limit of the whole call, None for the client's.
        :param on_refused: called with the ids that are left, each time that they were asked for and refused.
        :raises ReadTimeoutError: ids are left whose transactions did not end in time.
        :raises UnreachableError: coordinators did not answer in time.
        :raises ConfigurationError: the principal may not write with one of them.
        :raises EosError: a coordinator answered with another error.
        """
        left = sorted(set(transactional_ids))
        limit = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit
        pause = _FENCE_PAUSE_SECONDS
        fenced: dict[str, Fenced] = {}
        while left:
            try:
                done = self._fence_once(left, timeout_ms, deadline)
            except UnreachableError:
                if time.monotonic() + pause >= deadline:
                    raise
                continue  # a new client took its time to find no broker
            fenced.update(done.fenced)
            left = list(done.not_now)
            if left and time.monotonic() + pause >= deadline:
                raise self._not_fenced(done.not_now, limit)
            if done.broken:
                self._close()
            if left:
                on_refused(left)
                time.sleep(pause)  # between two questions; the deadline bounds them
                pause = min(2 * pause, _PAUSE_SECONDS)
        return fenced

    def _fence_once(self, transactional_ids: Sequence[str], timeout_ms: int, deadline: float) -> Round:
        what = f"fencing {_some(transactional_ids)}"
        return self._run(lambda admin: fence_round(admin, transactional_ids, timeout_ms), what, deadline)

    def _not_fenced(self, left: dict[str, kafka.errors.KafkaError], limit: float) -> EosError:
        reasons = sorted({type(error).__name__ for error in left.values()})
        found = f"Within {limit:g} s {_some(list(left))} could not be fenced: {', '.join(reasons)}."
        if all(isinstance(error, kafka.errors.ConcurrentTransactionsError) for error in left.values()):
            return ReadTimeoutError(
                f"{found} Their last transactions have not ended in every partition.",
                remedy="Check that all brokers run (a marker waits for the partition's leader), and repeat the call.",
            )
        return UnreachableError(found, remedy="Check that all brokers run, and repeat the call.")

    def active_producers(self, topic: str, partitions: Iterable[int] = (0,)) -> tuple[ActiveProducer, ...]:
        """The producers that the partitions' leaders remember, by partition and producer id."""
        wanted = sorted(partitions)
        what = f"describing the producers of {topic}-{','.join(map(str, wanted[:10]))}"
        return self._run(lambda admin: _producers(admin, topic, wanted), what)

    def held_open(self, places: Collection[tuple[str, int]]) -> HeldLook:
        """The transactions that these partitions hold open."""
        return self._run(lambda admin: held_open(admin, places), "describing the producers of partitions")

    def writing(self, places: Collection[tuple[str, int]]) -> WritingLook:
        """Who writes to these partitions, by producer id."""
        return self._run(lambda admin: writing(admin, places), "describing the producers of partitions")

    def whole_list(self, coordinators: int) -> tuple[TransactionListing, ...] | None:
        """All transactional ids, as :meth:`list` gives them, if none can be missing; else None.

        A broker lists what it has loaded, and leaves out what the principal may not describe. So an id of each of the
        coordinators' partitions is described before and after: every partition has to have the same leader both times,
        which has loaded it, and the principal has to be allowed. A rule that denies the description of some ids alone
        cannot be noticed.

        :param coordinators: the number of partitions of ``__transaction_state``.
        """
        ids, what = one_id_for_each(coordinators), "asking every coordinator"
        before = self._run(lambda admin: loaded_coordinators(admin, ids), what)
        listed = self.list()
        after = self._run(lambda admin: loaded_coordinators(admin, ids), what)
        return listed if before is not None and before == after else None

    def abort(self, held: HeldOpen) -> None:
        """End a transaction in one partition as aborted; its records there are given up for good.

        It is asked once: whether a marker whose answer was lost is written, only another look can tell.

        :raises ConfigurationError: the principal has neither ClusterAction nor Alter on the cluster.
        :raises RefusedError: its producer, or its coordinator, has gone on.
        :raises EosError: whether the marker is written is not known.
        """
        where = f"{held.topic}-{held.partition}"
        if self._admin is None:
            self._admin = self._connect()
        try:
            self._admin._manager.run(write_abort_marker, self._admin, held)
        except kafka.errors.ClusterAuthorizationFailedError as error:
            raise self._no_marker() from error
        except (kafka.errors.InvalidProducerEpochError, kafka.errors.TransactionCoordinatorFencedError) as error:
            raise RefusedError(
                f"The producer of the transaction in {where}, or its coordinator, has changed since it was read.",
                remedy="List it again: 'eos transactions list --hanging'.",
            ) from error
        except (kafka.errors.KafkaError, OSError) as error:
            self._close()
            raise EosError(
                f"eos cannot tell whether the abort marker was written to {where}: {words(error)}.",
                remedy="Check with 'eos transactions list --hanging'.",
            ) from error

    def require_may_abort(self) -> None:
        """Check that the principal may end a transaction; nothing is written."""
        if not self._run(may_write_marker, "trying to end a transaction"):
            raise self._no_marker()

    def _no_marker(self) -> ConfigurationError:
        who = self._settings.who
        return ConfigurationError(
            f"{who} may not end a transaction: the brokers refuse it the marker of an abort.",
            expected=f"an ACL that allows {who} Alter (or ClusterAction) on the cluster",
            remedy=self._settings.rights_remedy,
        )

    def acls(self) -> tuple[Acl, ...] | None:
        """All ACLs on topics, groups, the cluster and transactional ids; None where the brokers have no authorizer."""
        return self._run(read_acls, "reading the ACLs")

    def create_acls(self, acls: Collection[Acl]) -> None:
        """Create ACLs; one that exists stays as it is."""
        for part in _parts(acls):
            self._run(partial(create_acls, wanted=part), "creating ACLs")

    def delete_acls(self, acls: Collection[Acl]) -> tuple[Acl, ...]:
        """Delete exactly these ACLs, and return those that existed; fewer if a lost answer made it ask again."""
        return tuple(
            acl for part in _parts(acls) for acl in self._run(partial(delete_acls, wanted=part), "deleting ACLs")
        )

    def may_describe(self, transactional_ids: Collection[str]) -> frozenset[str]:
        """The ids that this principal may describe, whether the brokers know them or not."""
        return self._run(lambda admin: may_describe(admin, transactional_ids), "trying to describe transactions")

    def may_write(self, transactional_ids: Collection[str]) -> frozenset[str]:
        """The ids that this principal may write with. The attempt does not affect their owners."""
        return self._run(lambda admin: may_write(admin, transactional_ids), "trying to write with transactional ids")

    def may_join(self, groups: Collection[str]) -> frozenset[str]:
        """The groups that this principal may join. The attempt does not affect their members."""
        return self._run(lambda admin: may_join(admin, groups), "trying to join groups")

    def broker_version(self) -> tuple[int, int]:
        """The version of the brokers, by the messages that one of them knows."""
        return self._run(broker_version, "asking for the brokers' version")

    def writers(
        self,
        topic: str,
        begin: Mapping[int, int],
        end: Mapping[int, int],
        progress: Progress | None = None,
    ) -> dict[int, PartitionWriters]:
        """Who wrote a topic's records, and how their transactions ended, from the headers of its batches.

        :param begin: by partition the first offset that counts; the whole log's, to be sure of open transactions.
        :param end: by partition the offset after the last one.
        :param progress: called with offsets passed and offsets in all.
        """
        writers = {partition: PartitionWriters() for partition in end}
        positions = {partition: begin[partition] for partition, last in end.items() if begin[partition] < last}
        total = sum(end[partition] - offset for partition, offset in positions.items())
        what = f"reading the batches of {topic}"
        moved_at = time.monotonic()
        while positions:
            before = dict(positions)
            for partition, piece in self._run(partial(fetch, topic=topic, positions=before), what).items():
                try:
                    batches = list(headers(piece))
                except ValueError as error:
                    raise EosError(
                        f"Partition {topic}-{partition} has a batch of an unsupported format: {error}."
                    ) from None
                for batch in batches:
                    if batch.last_offset >= positions[partition]:  # the first may begin before what was asked for
                        writers[partition].take(batch)
                        positions[partition] = batch.last_offset + 1
            if positions != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._timeout_seconds:
                raise ReadTimeoutError(f"{topic} gave nothing more from {before} on, before its ends {dict(end)}.")
            positions = {partition: offset for partition, offset in positions.items() if offset < end[partition]}
            if progress:
                progress(total - sum(end[partition] - offset for partition, offset in positions.items()), total)
        return writers

    def _run(self, question: Callable[[Any], Coroutine[Any, Any, T]], what: str, deadline: float | None = None) -> T:
        """Ask, and ask again while the answer is only "not now"."""
        deadline = time.monotonic() + self._timeout_seconds if deadline is None else deadline
        while True:
            try:
                if self._admin is None:
                    self._admin = self._connect()
                return self._admin._manager.run(question, self._admin)  # type: ignore[no-any-return]
            except kafka.errors.KafkaError as error:
                if is_refusal(error) and not isinstance(error, kafka.errors.AuthorizationError):
                    self._close()  # it remembers the refusal for good; a token or a certificate may be renewed
                if not _is_momentary(error) or time.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise self._explain(error, what) from error
                # A new client has no stale coordinator, leader or connection.
                self._close()
                time.sleep(_PAUSE_SECONDS)

    def _connect(self) -> Any:
        with ExitStack() as quiet:
            quiet.enter_context(quiet_kafka_python())
            admin = self._new_admin()
            self._quiet = quiet.pop_all()  # until it is closed: it has a thread
        return admin

    def _new_admin(self) -> Any:
        limit_ms = int(min(CONNECT_SECONDS, self._timeout_seconds) * 1000)
        try:
            configured = self._settings.kafka_python()
            limits = {
                "bootstrap_timeout_ms": limit_ms,
                "request_timeout_ms": int(self._timeout_seconds * 1000),
                "max_in_flight_requests_per_connection": 2 * WINDOW,
                "reconnect_backoff_max_ms": 500,  # by default it grows to 30 s; every client here has its own deadline
            }
            return _Admin(**{**configured, **limits})
        except kafka.errors.KafkaConfigurationError as error:
            raise ConfigurationError(f"The Kafka client settings are not usable: {error}.") from None
        except (kafka.errors.KafkaError, OSError, ValueError) as error:
            raise self._explain(error, "connecting") from error

    def _close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with self._quiet, contextlib.suppress(Exception):  # the answer is had already, or an error is on its way
                admin.close()

    def _explain(self, error: Exception, what: str) -> EosError:
        if isinstance(error, kafka.errors.TransactionalIdAuthorizationFailedError):
            operations = (
                [Operation.DESCRIBE] if what.startswith("describing") else [Operation.WRITE, Operation.DESCRIBE]
            )
            transactional_id = str(error).rpartition(_ABOUT_ID)[2]
            return not_allowed(self._settings, what, operations, Resource.TRANSACTIONAL_ID, transactional_id)
        return explained(error, what, self._settings)


#: Before the id in an error of the wire.
_ABOUT_ID = "transactional id "


class _Client(KafkaNetClient):  # type: ignore[misc]
    def __init__(self, **settings: Any) -> None:
        net = NetworkSelector(**settings)
        super().__init__(net=net, manager=Manager(net, **settings))


class _Admin(KafkaAdminClient):  # type: ignore[misc]
    """An admin client whose thread does not outlive a constructor that fails, and that fails with the reason."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings, kafka_client=_Client)
        except BaseException as error:
            net = getattr(self, "_net", None)
            if net is not None:
                with contextlib.suppress(Exception):
                    self._client.close()
                net.stop(timeout_ms=1000)
            reason = getattr(getattr(self, "_manager", None), "last_failure", None)
            if reason is not None and isinstance(error, kafka.errors.KafkaTimeoutError):
                raise reason from error
            raise


def _parts(acls: Iterable[Acl]) -> list[list[Acl]]:
    whole = sorted(acls)
    return [whole[first : first + _ACLS_AT_ONCE] for first in range(0, len(whole), _ACLS_AT_ONCE)]


def _some(transactional_ids: Sequence[str]) -> str:
    """The ids for an error, the first few by name."""
    return f"transactional id{'s' * (len(transactional_ids) > 1)} {first_few(transactional_ids)}"


def _is_momentary(error: Exception) -> bool:
    """Whether a new client may fare better; this one may have got to know the brokers while one was away."""
    momentary = isinstance(error, kafka.errors.RetriableError | kafka.errors.UnknownBrokerIdError)
    return momentary and not isinstance(error, kafka.errors.UnknownTopicOrPartitionError) and not is_refusal(error)


def _check(code: int, what: str) -> None:
    if code != 0:
        raise kafka.errors.for_code(code)(what)


async def _list(admin: Any, prefix: str, states: Sequence[str]) -> tuple[TransactionListing, ...]:
    manager = admin._manager
    request: dict[str, Any] = {"state_filters": states, "producer_id_filters": []}
    if prefix and manager.broker_version_data.api_version(ListTransactionsRequest) >= _LIST_WITH_PATTERN:
        # Spares the wire on a large cluster; what counts is the comparison below.
        request.update(transactional_id_pattern=f"{re.escape(prefix)}.*", min_version=_LIST_WITH_PATTERN)
    # Each broker lists the ids that it coordinates itself.
    pending = {
        broker.node_id: manager.send(ListTransactionsRequest(**request), node_id=broker.node_id)
        for broker in manager.cluster.brokers()
    }
    found: set[TransactionListing] = set()
    for node_id, future in pending.items():
        response = await future
        _check(response.error_code, f"broker {node_id}")
        found.update(
            TransactionListing(t.transactional_id, TransactionState(t.transaction_state), t.producer_id)
            for t in response.transaction_states
            if t.transactional_id.startswith(prefix)
        )
    return tuple(sorted(found))


async def _describe(admin: Any, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
    found = {}
    for entry in await described(admin, await coordinators_of(admin, transactional_ids)):
        if entry.error_code == kafka.errors.TransactionalIdNotFoundError.errno:
            continue
        _check(entry.error_code, f"{_ABOUT_ID}{entry.transactional_id}")
        state = TransactionState(entry.transaction_state)
        # The broker goes on reporting the start of the last transaction after it has ended.
        began = entry.transaction_start_time_ms if entry.transaction_start_time_ms >= 0 else None
        found[entry.transactional_id] = TransactionDescription(
            transactional_id=entry.transactional_id,
            state=state,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            timeout_ms=entry.transaction_timeout_ms,
            started_at_ms=began if state.is_open else None,
            partitions=tuple(sorted((topic.topic, p) for topic in entry.topics for p in topic.partitions)),
            last_started_at_ms=began,
        )
    return found


async def _producers(admin: Any, topic: str, partitions: Sequence[int]) -> tuple[ActiveProducer, ...]:
    leaders = await admin._async_get_leader_for_partitions([TopicPartition(topic, p) for p in partitions])
    by_leader = {leader: {topic: [place.partition for place in led]} for leader, led in leaders.items()}
    if without := [number for leader, led in by_leader.items() if leader < 0 for number in led[topic]]:
        # kafka-python would look for a broker of that number
        raise kafka.errors.LeaderNotAvailableError(f"{topic}-{without[0]} has no leader")
    found = []
    for _, answer in await producers_of(admin, by_leader):
        _check(answer.error_code, f"{topic}-{answer.partition_index}")
        found += [
            ActiveProducer(
                partition=answer.partition_index,
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                last_sequence=p.last_sequence,
                last_timestamp_ms=p.last_timestamp,
                transaction_start_offset=p.current_txn_start_offset if p.current_txn_start_offset >= 0 else None,
            )
            for p in answer.active_producers
        ]
    return tuple(sorted(found))
