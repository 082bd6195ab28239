"""What a principal may do: the ACLs read, the use of ids and groups tried without an effect. The wire's part.

A broker asks its authorizer before all else, so a request that cannot do anything tells (``KafkaApis``, Kafka 2.4 to
4.3): one that it refuses for another reason was allowed. ``EndTxn`` names a producer that does not exist, and the
coordinator compares that with the id's own before it touches the transaction; ``Heartbeat`` names a member that does
not exist. ``InitProducerId`` would fence whoever has the id, and is never sent.

The ACLs are read here because confluent-kafka 2.16 returns none of them, and no error, to whom the brokers refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import kafka.errors
from kafka.protocol.admin import DescribeAclsRequest
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.producer import EndTxnRequest

from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.admin.coordinators import described
from airflow_eos_provider.kafka.admin.open_transactions import NO_PRODUCER

#: The newest version that all brokers with transactions and this package's clients know in the same meaning.
_END_TXN_VERSION = 3

_NO_MEMBER = "eos-acl-no-such-member"

#: What Kafka's ``AclOperation``, ``ResourceType``, ``PatternType`` and ``AclPermissionType`` have for numbers.
_ANY = 1
_DENY = 2
_OPERATIONS = {
    2: Operation.ALL,
    3: Operation.READ,
    4: Operation.WRITE,
    5: Operation.CREATE,
    6: Operation.DELETE,
    7: Operation.ALTER,
    8: Operation.DESCRIBE,
    9: Operation.CLUSTER_ACTION,
    10: Operation.DESCRIBE_CONFIGS,
    11: Operation.ALTER_CONFIGS,
    12: Operation.IDEMPOTENT_WRITE,
}
_RESOURCES = {2: Resource.TOPIC, 3: Resource.GROUP, 4: Resource.CLUSTER, 5: Resource.TRANSACTIONAL_ID}
_PATTERNS = {3: Pattern.LITERAL, 4: Pattern.PREFIXED}

#: How a broker begins when it refuses: with Java's text of our request, addresses of its objects included.
_REQUEST = re.compile(r"Request Request\(.*\) (?=needs )", re.DOTALL)

_IDS_REFUSED = kafka.errors.TransactionalIdAuthorizationFailedError
_GROUP_REFUSED = kafka.errors.GroupAuthorizationFailedError


async def acls(admin: Any) -> tuple[Acl, ...] | None:
    """All ACLs on topics, groups, the cluster and transactional ids; None where the brokers have no authorizer.

    :param admin: kafka-python's admin client.
    :raises kafka.errors.KafkaError: the principal may not read them, or no broker answered.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await admin._manager.send(request, node_id=_any_broker(admin))
    if answer.error_code == kafka.errors.SecurityDisabledError.errno:
        return None
    if answer.error_code:
        raise kafka.errors.for_code(answer.error_code)(_REQUEST.sub("it ", answer.error_message or ""))
    return tuple(
        sorted(
            Acl(
                principal=each.principal,
                operation=_OPERATIONS[each.operation],
                resource=_RESOURCES[resource.resource_type],
                name=resource.resource_name,
                pattern=_PATTERNS[resource.pattern_type],
                host=each.host,
                is_denial=each.permission_type == _DENY,
            )
            for resource in answer.resources
            if resource.resource_type in _RESOURCES
            for each in resource.acls
            if each.operation in _OPERATIONS
        )
    )


async def may_describe(admin: Any, transactional_ids: Collection[str]) -> frozenset[str]:
    """The ids that the principal may describe, whether the brokers know them or not.

    :param admin: kafka-python's admin client.
    :raises kafka.errors.KafkaError: a broker did not answer.
    """
    node = _any_broker(admin)
    answers = await described(admin, dict.fromkeys(transactional_ids, node))
    return frozenset(each.transactional_id for each in answers if each.error_code != _IDS_REFUSED.errno)


async def may_write(admin: Any, transactional_ids: Collection[str]) -> frozenset[str]:
    """The ids that the principal may write with. Nothing is ended: see above.

    :param admin: kafka-python's admin client.
    :raises kafka.errors.KafkaError: a broker did not answer.
    :raises AssertionError: a broker says that it ended a transaction.
    """
    node = _any_broker(admin)
    pending = {
        each: admin._manager.send(
            EndTxnRequest(
                transactional_id=each,
                producer_id=NO_PRODUCER,
                producer_epoch=0,
                committed=False,
                max_version=_END_TXN_VERSION,
            ),
            node_id=node,
        )
        for each in transactional_ids
    }
    codes = {each: (await future).error_code for each, future in pending.items()}
    assert all(codes.values()), f"a broker ended a transaction of a producer that does not exist: {codes}"
    return frozenset(each for each, code in codes.items() if code != _IDS_REFUSED.errno)


async def may_join(admin: Any, groups: Collection[str]) -> frozenset[str]:
    """The groups that the principal may join (*Read* on the group).

    :param admin: kafka-python's admin client.
    :raises kafka.errors.KafkaError: a broker did not answer.
    """
    node = _any_broker(admin)
    pending = {
        each: admin._manager.send(
            HeartbeatRequest(group_id=each, generation_id=-1, member_id=_NO_MEMBER, group_instance_id=None),
            node_id=node,
        )
        for each in groups
    }
    codes = {each: (await future).error_code for each, future in pending.items()}
    return frozenset(each for each, code in codes.items() if code != _GROUP_REFUSED.errno)


async def broker_version(admin: Any) -> tuple[int, int]:
    """The version of the broker that was asked first, by the messages that it knows.

    :param admin: kafka-python's admin client.
    """
    major, minor, *_ = admin._manager.broker_version
    return int(major), int(minor)


def _any_broker(admin: Any) -> int:
    """Any will do: it asks its authorizer first, and whether it is the coordinator afterwards."""
    return min(int(broker.node_id) for broker in admin._manager.cluster.brokers())
