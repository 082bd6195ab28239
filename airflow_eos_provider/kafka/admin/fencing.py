"""Fences transactional ids in bulk: the requests of ``TransactionsClient.fence``.

An id is fenced by InitProducerId: the coordinator gives it the next epoch, after which no producer of an earlier one
can write or commit. While a transaction of the id is open, or its commit or abort has not yet put a marker into every
partition, the coordinator only refuses (CONCURRENT_TRANSACTIONS) and aborts the open transaction. So a success means
that no transaction of the id is unfinished. Callers rely on both.

Java's ``Admin.fenceProducers`` sends one id at a time and backs off in between. Here the coordinators of all ids are
looked up by one request, and each gets its ids' requests without waiting for the answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import kafka.errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

#: Requests on their way to one coordinator at a time. More gain nothing, for a broker works on one request of a
#: connection after the other; the connection's own limit has to be higher.
WINDOW = 200

#: Ids in one look-up of coordinators; some 100 bytes each.
_LOOK_UP = 5000

#: Answers that mean "not now" of one id: a marker is still to be written, or the coordinator moves.
_NOT_NOW = (
    kafka.errors.ConcurrentTransactionsError,
    kafka.errors.CoordinatorLoadInProgressError,
    kafka.errors.CoordinatorNotAvailableError,
    kafka.errors.NotCoordinatorError,
    # Another producer's InitProducerId came between the abort of an open transaction and ours.
    kafka.errors.InvalidProducerEpochError,
    kafka.errors.ProducerFencedError,
)


class Fenced(NamedTuple):
    """What the coordinator gave an id; producers with an earlier epoch, or another producer id, are shut out."""

    producer_id: int
    epoch: int


class Round(NamedTuple):
    """What one round of requests came to.

    :param broken: a connection was lost or the broker unknown, so that the next round wants a new client.
    """

    fenced: dict[str, Fenced]
    not_now: dict[str, kafka.errors.KafkaError]
    broken: bool


async def fence_round(admin: Any, transactional_ids: Iterable[str], transaction_timeout_ms: int) -> Round:
    """Ask for each id once.

    :param admin: kafka-python's admin client, with more than :data:`WINDOW` requests in flight allowed.
    """
    found = Round({}, {}, False)
    by_coordinator, answers = await _coordinators(admin, list(transactional_ids))
    # One task for each coordinator: they do not wait for one another.
    asking = [
        admin._manager.call_soon(_ask, admin._manager, node_id, ids, transaction_timeout_ms)
        for node_id, ids in by_coordinator.items()
    ]
    for task in asking:
        answers.update(await task)
    broken = False
    for transactional_id, answer in answers.items():
        if isinstance(answer, Fenced):
            found.fenced[transactional_id] = answer
        elif isinstance(answer, (*_NOT_NOW, kafka.errors.RetriableError)):
            found.not_now[transactional_id] = answer
            broken = broken or not isinstance(answer, _NOT_NOW)
        else:
            raise answer
    return found._replace(broken=broken)


async def _coordinators(
    admin: Any, transactional_ids: list[str]
) -> tuple[dict[int, list[str]], dict[str, Fenced | kafka.errors.KafkaError]]:
    """The ids by their coordinators of this moment, and those that have none."""
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    without: dict[str, Fenced | kafka.errors.KafkaError] = {}
    for start in range(0, len(transactional_ids), _LOOK_UP):
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION.value,
            coordinator_keys=transactional_ids[start : start + _LOOK_UP],
            min_version=4,  # from here on it takes more than one key; Kafka 3.0, before exactly-once sources
        )
        for row in (await admin._manager.send(request)).coordinators:
            try:
                # Not only for us: kafka-python knows a coordinator that is not in its metadata only from here.
                node_id = admin._manager.cluster.add_coordinator(
                    row, CoordinatorType.TRANSACTION, row.key, synthesize_node_id=False
                )
            except kafka.errors.KafkaError as error:
                without[row.key] = _about(row.key, error)
            else:
                by_coordinator[node_id].append(row.key)
    return by_coordinator, without


async def _ask(
    manager: Any, node_id: int, transactional_ids: Collection[str], transaction_timeout_ms: int
) -> dict[str, Fenced | kafka.errors.KafkaError]:
    """One coordinator's answers about its ids."""
    answers: dict[str, Fenced | kafka.errors.KafkaError] = {}
    waiting: list[str] = list(transactional_ids)
    while waiting:
        window, waiting = waiting[:WINDOW], waiting[WINDOW:]
        pending = {}
        for transactional_id in window:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
            pending[transactional_id] = manager.send(request, node_id=node_id)
        for transactional_id, future in pending.items():
            answers[transactional_id] = await _answer(transactional_id, future)
    return answers


async def _answer(transactional_id: str, future: Any) -> Fenced | kafka.errors.KafkaError:
    try:
        response = await future
    except kafka.errors.KafkaError as error:
        return _about(transactional_id, error)
    if response.error_code:
        return _about(transactional_id, kafka.errors.for_code(response.error_code)())
    return Fenced(response.producer_id, response.producer_epoch)


def _about(transactional_id: str, error: kafka.errors.KafkaError) -> kafka.errors.KafkaError:
    """The same error, naming the id."""
    return type(error)(f"{type(error).__name__} for transactional id {transactional_id}")
