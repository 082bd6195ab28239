"""Transactions as the brokers report them. Only this package (``coordinators``, ``fencing``, ``open_transactions``,
``acls`` and the others) knows wire messages.

confluent-kafka has no call for transactions, so these go through kafka-python 3: its connections and its message
classes. The answers are read here, because its own readers give up at the first unknown id and at a state of a broker
that is younger than they are.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import kafka.errors
from kafka.protocol.admin.transactions import ListTransactionsRequest

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
from airflow_eos_provider.kafka.admin.bulk_fencing import Fenced, fence_round
from airflow_eos_provider.kafka.admin.client import Admin, Place, error_in
from airflow_eos_provider.kafka.admin.coordinators import (
    ABOUT_ID,
    about_id,
    coordinators_of,
    described,
    loaded_coordinators,
    one_id_for_each,
)
from airflow_eos_provider.kafka.admin.id_rights import may_describe, may_join, may_write
from airflow_eos_provider.kafka.admin.open_transactions import (
    ActiveProducer,
    HeldLook,
    HeldOpen,
    WritingLook,
    active_producers,
    held_open,
    may_write_marker,
    write_abort_marker,
    writing,
)
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.questions import not_allowed
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import words

__all__ = ["ActiveProducer", "Fenced", "TransactionDescription", "TransactionListing", "TransactionsClient"]

T = TypeVar("T")

#: ListTransactions takes a pattern from this version on (Kafka 4.1, KIP-1152).
_LIST_WITH_PATTERN = 2

#: Transaction timeout that fencing leaves behind, milliseconds. Java's Admin sends 1, but a coordinator waits for its
#: replicas no longer than that: with three brokers it refused most ids for many seconds.
FENCE_TIMEOUT_MS = 30_000

#: Between two rounds of fencing, at first and at most: the markers of an aborted transaction take a few milliseconds, a
#: coordinator that moves takes seconds.
_FENCE_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.2

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


class TransactionsClient(Admin):
    """The client for questions about transactions and rights too; a context manager. It fences.

    Each method raises :class:`UnreachableError` where a broker does not answer, so that the answer would not be whole,
    :class:`ConfigurationError` where the principal may not ask, and :class:`EosError` for another answer.

    :param timeout_seconds: limit of each call, momentary refusals of a coordinator that moves included.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_seconds: float = 15.0) -> None:
        super().__init__(settings)
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(self, prefix: str = "", *, open_only: bool = False) -> tuple[TransactionListing, ...]:
        """All transactional ids that begin with ``prefix``, in their order; the brokers forget one after 7 idle days.

        :param open_only: only those with an open transaction, chosen by the brokers: of 50,000 ids they send a few. An
            open state that this version does not know is left out.
        """
        states = [str(state) for state in TransactionState if state.is_open] if open_only else []
        return self._run("listing transactions", _list, prefix, states)

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What the coordinators know of these ids; unknown ones are absent."""
        wanted = sorted(set(transactional_ids))
        return self._run("describing transactions", _describe, wanted) if wanted else {}

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
            question = partial(fence_round, self, left, timeout_ms)
            answers = self.ask(f"fencing {_some(left)}", question, deadline - time.monotonic())
            fenced |= {each: answer for each, answer in answers.items() if isinstance(answer, Fenced)}
            not_now = {each: answer for each, answer in answers.items() if not isinstance(answer, Fenced)}
            left = list(not_now)
            if left:
                if time.monotonic() + pause >= deadline:
                    raise self._not_fenced(not_now, limit)
                on_refused(left)
                time.sleep(pause)  # between two questions; the deadline bounds them
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return fenced

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
        return self._run(what, active_producers, topic, wanted)

    def held_open(self, places: Collection[Place]) -> HeldLook:
        """The transactions that these partitions hold open."""
        return self._run("describing the producers of partitions", held_open, places)

    def writing(self, places: Collection[Place]) -> WritingLook:
        """Who writes to these partitions, by producer id."""
        return self._run("describing the producers of partitions", writing, places)

    def whole_list(self, coordinators: int) -> tuple[TransactionListing, ...] | None:
        """All transactional ids, as :meth:`list` gives them, if none can be missing; else None.

        A broker lists what it has loaded, and leaves out what the principal may not describe. So an id of each of the
        coordinators' partitions is described before and after: every partition has to have the same leader both times,
        which has loaded it, and the principal has to be allowed. A rule that denies the description of some ids alone
        cannot be noticed.

        :param coordinators: the number of partitions of ``__transaction_state``.
        """
        ids, what = one_id_for_each(coordinators), "asking every coordinator"
        before = self._run(what, loaded_coordinators, ids)
        listed = self.list()
        after = self._run(what, loaded_coordinators, ids)
        return listed if before is not None and before == after else None

    def abort(self, held: HeldOpen) -> None:
        """End a transaction in one partition as aborted; its records there are given up for good.

        It is asked once: whether a marker whose answer was lost is written, only another look can tell.

        :raises ConfigurationError: the principal has neither ClusterAction nor Alter on the cluster.
        :raises RefusedError: its producer, or its coordinator, has gone on.
        :raises EosError: whether the marker is written is not known.
        """
        where = f"{held.topic}-{held.partition}"
        deadline = time.monotonic() + self._timeout_seconds
        self.run("connecting", self.connected, deadline)
        try:
            self.wire.run(write_abort_marker, self, held, deadline)
        except kafka.errors.ClusterAuthorizationFailedError as error:
            raise self._no_marker() from error
        except (kafka.errors.InvalidProducerEpochError, kafka.errors.TransactionCoordinatorFencedError) as error:
            raise RefusedError(
                f"The producer of the transaction in {where}, or its coordinator, has changed since it was read.",
                remedy="List it again: 'eos transactions list --hanging'.",
            ) from error
        except (kafka.errors.KafkaError, OSError) as error:
            raise EosError(
                f"eos cannot tell whether the abort marker was written to {where}: {words(error)}.",
                remedy="Check with 'eos transactions list --hanging'.",
            ) from error

    def require_may_abort(self) -> None:
        """Check that the principal may end a transaction; nothing is written."""
        if not self._run("trying to end a transaction", may_write_marker):
            raise self._no_marker()

    def _no_marker(self) -> ConfigurationError:
        who = self.settings.who
        return ConfigurationError(
            f"{who} may not end a transaction: the brokers refuse it the marker of an abort.",
            expected=f"an ACL that allows {who} Alter (or ClusterAction) on the cluster",
            remedy=self.settings.rights_remedy,
        )

    def acls(self) -> tuple[Acl, ...] | None:
        """All ACLs on topics, groups, the cluster and transactional ids; None where the brokers have no authorizer."""
        return self._run("reading the ACLs", read_acls)

    def create_acls(self, acls: Collection[Acl]) -> None:
        """Create ACLs; one that exists stays as it is."""
        for part in _parts(acls):
            self._run("creating ACLs", create_acls, part)

    def delete_acls(self, acls: Collection[Acl]) -> tuple[Acl, ...]:
        """Delete exactly these ACLs, and return those that existed; fewer if a lost answer made it ask again."""
        return tuple(acl for part in _parts(acls) for acl in self._run("deleting ACLs", delete_acls, part))

    def may_describe(self, transactional_ids: Collection[str]) -> frozenset[str]:
        """The ids that this principal may describe, whether the brokers know them or not."""
        return self._run("trying to describe transactions", may_describe, transactional_ids)

    def may_write(self, transactional_ids: Collection[str]) -> frozenset[str]:
        """The ids that this principal may write with. The attempt does not affect their owners."""
        return self._run("trying to write with transactional ids", may_write, transactional_ids)

    def may_join(self, groups: Collection[str]) -> frozenset[str]:
        """The groups that this principal may join. The attempt does not affect their members."""
        return self._run("trying to join groups", may_join, groups)

    def broker_version(self) -> tuple[int, int]:
        """The version of the brokers, by the messages that one of them knows."""
        self.cluster(self._timeout_seconds, "asking for the brokers' version")
        return self.wire.broker_version

    def explain(self, error: Exception, what: str) -> EosError:
        if isinstance(error, kafka.errors.TransactionalIdAuthorizationFailedError):
            operations = (
                [Operation.DESCRIBE] if what.startswith("describing") else [Operation.WRITE, Operation.DESCRIBE]
            )
            transactional_id = str(error).rpartition(ABOUT_ID)[2]
            return not_allowed(self.settings, what, operations, Resource.TRANSACTIONAL_ID, transactional_id)
        return super().explain(error, what)

    def _run(self, what: str, question: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Ask a question of this package, which takes the client, these arguments and its deadline."""
        return self.ask(what, partial(question, self, *arguments), self._timeout_seconds)


def _parts(acls: Iterable[Acl]) -> list[list[Acl]]:
    whole = sorted(acls)
    return [whole[first : first + _ACLS_AT_ONCE] for first in range(0, len(whole), _ACLS_AT_ONCE)]


def _some(transactional_ids: Sequence[str]) -> str:
    """The ids for an error, the first few by name."""
    return f"transactional id{'s' * (len(transactional_ids) > 1)} {first_few(transactional_ids)}"


async def _list(admin: Admin, prefix: str, states: Sequence[str], deadline: float) -> tuple[TransactionListing, ...]:
    request: dict[str, Any] = {"state_filters": states, "producer_id_filters": []}
    if prefix and admin.wire.newest_version(ListTransactionsRequest) >= _LIST_WITH_PATTERN:
        # Spares the wire on a large cluster; what counts is the comparison below.
        request.update(transactional_id_pattern=f"{re.escape(prefix)}.*", min_version=_LIST_WITH_PATTERN)
    # Each broker lists the ids that it coordinates itself.
    requests = [(ListTransactionsRequest(**request), broker) for broker in await admin.brokers(deadline)]
    found: set[TransactionListing] = set()
    for answer in await admin.answers(requests, deadline):
        if (error := error_in(answer)) is not None:
            raise error
        found.update(
            TransactionListing(t.transactional_id, TransactionState(t.transaction_state), t.producer_id)
            for t in answer.transaction_states
            if t.transactional_id.startswith(prefix)
        )
    return tuple(sorted(found))


async def _describe(
    admin: Admin, transactional_ids: Iterable[str], deadline: float
) -> dict[str, TransactionDescription]:
    found = {}
    for entry in await described(admin, await coordinators_of(admin, transactional_ids, deadline), deadline):
        error = error_in(entry)
        if isinstance(error, kafka.errors.TransactionalIdNotFoundError):
            continue
        if error is not None:
            raise about_id(entry.transactional_id, error)
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
