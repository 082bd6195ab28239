"""Fences transactional ids in bulk: the requests of ``TransactionsClient.fence``.

An id is fenced by InitProducerId: the coordinator gives it the next epoch, after which no producer of an earlier one
can write or commit. While a transaction of the id is open, or its commit or abort has not yet put a marker into every
partition, the coordinator only refuses (CONCURRENT_TRANSACTIONS) and aborts the open transaction. So a success means
that no transaction of the id is unfinished. Callers rely on both.

Java's ``Admin.fenceProducers`` sends one id at a time and backs off in between. Here the coordinators of all ids are
looked up by one request, and each gets its ids' requests without waiting for the answers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeAlias

import kafka.errors
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import InitProducerIdRequest

from airflow_eos_provider.kafka.admin.client import Admin, error_in
from airflow_eos_provider.kafka.admin.coordinators import about_id

#: Answers that mean "not now" of one id: a marker is still to be written, or the coordinator moves.
_NOT_NOW = (
    kafka.errors.RetriableError,
    kafka.errors.UnknownBrokerIdError,
    kafka.errors.BrokerNotAvailableError,
    # Another producer's InitProducerId came between the abort of an open transaction and ours.
    kafka.errors.InvalidProducerEpochError,
    kafka.errors.ProducerFencedError,
)


class Fenced(NamedTuple):
    """What the coordinator gave an id; producers with an earlier epoch, or another producer id, are shut out."""

    producer_id: int
    epoch: int


#: By id what one round of requests came to: an error is one that means "not now".
Round: TypeAlias = dict[str, Fenced | kafka.errors.KafkaError]


async def fence_round(
    admin: Admin, transactional_ids: Collection[str], transaction_timeout_ms: int, deadline: float
) -> Round:
    """Ask for each id once."""
    coordinators = await admin.wire.coordinators(list(transactional_ids), CoordinatorType.TRANSACTION, deadline)
    requests = [
        (
            transactional_id,
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            ),
            coordinator,
        )
        for transactional_id, coordinator in coordinators.items()
        if not isinstance(coordinator, Exception)
    ]
    answers = {**coordinators, **dict(await admin.gather(requests, deadline))}
    found: Round = {}
    for transactional_id, answer in answers.items():
        error = answer if isinstance(answer, Exception) else error_in(answer)
        if error is None:
            found[transactional_id] = Fenced(answer.producer_id, answer.producer_epoch)
        else:
            named = about_id(transactional_id, error)
            if not isinstance(error, _NOT_NOW):
                raise named
            found[transactional_id] = named
    return found
