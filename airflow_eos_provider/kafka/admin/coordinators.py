"""The brokers that coordinate transactional ids, and what they have loaded (KIP-664)."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType

from airflow_eos_provider.kafka.admin.client import Admin

#: Before the id in an error about one.
ABOUT_ID = "transactional id "


def about_id(transactional_id: str, error: kafka.errors.KafkaError) -> kafka.errors.KafkaError:
    """The same error, naming the id."""
    return type(error)(f"{type(error).__name__} for {ABOUT_ID}{transactional_id}")


async def coordinators_of(admin: Admin, transactional_ids: Iterable[str], deadline: float) -> dict[str, int]:
    """By id the broker that coordinates it."""
    found: dict[str, int] = {}
    asked = await admin.wire.coordinators(list(transactional_ids), CoordinatorType.TRANSACTION, deadline)
    for transactional_id, broker in asked.items():
        if isinstance(broker, Exception):
            raise about_id(transactional_id, broker)
        found[transactional_id] = broker
    return found


async def described(admin: Admin, coordinators: Mapping[str, int], deadline: float) -> list[Any]:
    """What coordinators answer about transactional ids, each with an error code of its own."""
    by_broker: defaultdict[int, list[str]] = defaultdict(list)
    for transactional_id, broker in coordinators.items():
        by_broker[broker].append(transactional_id)
    requests = [(DescribeTransactionsRequest(transactional_ids=ids), broker) for broker, ids in by_broker.items()]
    return [entry for answer in await admin.answers(requests, deadline) for entry in answer.transaction_states]


async def loaded_coordinators(admin: Admin, transactional_ids: Iterable[str], deadline: float) -> dict[str, int] | None:
    """The brokers that coordinate these ids, each of which has loaded what it has to know of them.

    :returns: None if the principal may not describe one of them, or one of the brokers is not in the cluster's list.
    """
    try:
        found = await coordinators_of(admin, transactional_ids, deadline)
    except kafka.errors.TransactionalIdAuthorizationFailedError:  # who coordinates an id is part of its description
        return None
    if not set(await admin.brokers(deadline)).issuperset(found.values()):
        return None
    may_see = True
    for entry in await described(admin, found, deadline):
        error = kafka.errors.for_code(entry.error_code)
        if error is kafka.errors.TransactionalIdAuthorizationFailedError:
            may_see = False
        elif error is not kafka.errors.TransactionalIdNotFoundError:
            raise error(entry.transactional_id)
    return found if may_see else None


def one_id_for_each(partitions: int) -> list[str]:
    """Random transactional ids that nobody uses, one for each partition of ``__transaction_state``.

    They have no beginning in common, so that a right on a prefix does not cover them.
    """
    found: dict[int, str] = {}
    while len(found) < partitions:
        name = secrets.token_hex(12)
        found.setdefault(partition_of(name, partitions), name)
    return [found[partition] for partition in sorted(found)]


def partition_of(transactional_id: str, partitions: int) -> int:
    """The partition of ``__transaction_state`` that an id of ASCII characters belongs to.

    ``TransactionStateManager.partitionFor``: the absolute value of ``String.hashCode``, unlike a record's partition,
    for which the sign is cut off; the least number, which has none, counts as 0 (``Utils.abs``).
    """
    hashed = java_hash(transactional_id)
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return 0 if signed == -(2**31) else abs(signed) % partitions


def java_hash(text: str) -> int:
    """``String.hashCode`` of a text of ASCII characters, as an unsigned number of 32 bits."""
    hashed = 0
    for character in text:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return hashed
