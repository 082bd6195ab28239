"""Checks, without an effect, whether a principal may use transactional ids and groups.

A broker asks its authorizer before anything else, so a request without an effect is enough (``KafkaApis``, Kafka 2.4 to
4.3): if the broker refuses it for another reason, it was allowed. ``EndTxn`` names a producer that does not exist: the
coordinator compares it with the id's own before it touches the transaction. ``Heartbeat`` names a member that does not
exist. ``InitProducerId`` is never sent: it would fence the current producer of the id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import kafka.errors
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.producer import EndTxnRequest

from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.coordinators import described
from airflow_eos_provider.kafka.admin.open_transactions import NO_PRODUCER

#: The newest version that all brokers with transactions and this package's clients know in the same meaning.
_END_TXN_VERSION = 3

_NO_MEMBER = "eos-acl-no-such-member"

_IDS_REFUSED = kafka.errors.TransactionalIdAuthorizationFailedError
_GROUP_REFUSED = kafka.errors.GroupAuthorizationFailedError


async def may_describe(admin: Admin, transactional_ids: Collection[str], deadline: float) -> frozenset[str]:
    """The ids that the principal may describe, whether the brokers know them or not."""
    answers = await described(admin, dict.fromkeys(transactional_ids, admin.wire.any_broker()), deadline)
    return frozenset(each.transactional_id for each in answers if each.error_code != _IDS_REFUSED.errno)


async def may_write(admin: Admin, transactional_ids: Collection[str], deadline: float) -> frozenset[str]:
    """The ids that the principal may write with. Nothing is ended: see above."""
    requests = [
        EndTxnRequest(
            transactional_id=each,
            producer_id=NO_PRODUCER,
            producer_epoch=0,
            committed=False,
            max_version=_END_TXN_VERSION,
        )
        for each in transactional_ids
    ]
    codes = dict(zip(transactional_ids, await _codes(admin, requests, deadline), strict=True))
    assert all(codes.values()), f"a broker ended a transaction of a producer that does not exist: {codes}"
    return frozenset(each for each, code in codes.items() if code != _IDS_REFUSED.errno)


async def may_join(admin: Admin, groups: Collection[str], deadline: float) -> frozenset[str]:
    """The groups that the principal may join (*Read* on the group)."""
    requests = [
        HeartbeatRequest(group_id=each, generation_id=-1, member_id=_NO_MEMBER, group_instance_id=None)
        for each in groups
    ]
    codes = zip(groups, await _codes(admin, requests, deadline), strict=True)
    return frozenset(each for each, code in codes if code != _GROUP_REFUSED.errno)


async def _codes(admin: Admin, requests: Iterable[Any], deadline: float) -> list[int]:
    """What a broker answers. Any will do: it asks its authorizer before it looks whether it is the coordinator."""
    broker = admin.wire.any_broker()
    return [answer.error_code for answer in await admin.answers(((each, broker) for each in requests), deadline)]
