"""The ACLs of a Kafka cluster created and deleted; what the brokers say of their authorizer, and of what one may do.

They are read by ``TransactionsClient.acls``: librdkafka drops the brokers' refusal of that, and shows no ACLs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.clients import QuietAdmin

_CALL_SECONDS = 20.0

#: librdkafka's names of what is done, and to what. It calls the cluster a broker.
_OPERATIONS = {operation: AclOperation[operation.name] for operation in Operation}
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.CLUSTER: ResourceType.BROKER,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS = {Pattern.LITERAL: ResourcePatternType.LITERAL, Pattern.PREFIXED: ResourcePatternType.PREFIXED}

_OPERATION_OF = {value: name for name, value in _OPERATIONS.items()}
_RESOURCE_OF = {value: name for name, value in _RESOURCES.items()}
_PATTERN_OF = {value: name for name, value in _PATTERNS.items()}


class Acls:
    """Changes the ACLs of one Kafka cluster. Every method raises :class:`UnreachableError` where no broker answers, and
    :class:`ConfigurationError` where the principal may not.

    :param admin: an admin client.
    """

    def __init__(self, admin: QuietAdmin) -> None:
        self._admin = admin

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; needs *Alter* on the cluster. One that is there stays as it is."""
        if bindings := [_binding(acl) for acl in acls]:
            futures = self._admin.client.create_acls(bindings, request_timeout=_CALL_SECONDS)
            for binding, future in futures.items():
                self._admin.answer(future, f"creating the ACL {_acl(binding)}")

    def delete(self, acls: Iterable[Acl]) -> tuple[Acl, ...]:
        """Delete ACLs, exactly these; needs *Alter* on the cluster. Returns those that were there."""
        deleted: list[Acl] = []
        filters = [_filter(acl) for acl in acls]
        if filters:
            for future in self._admin.client.delete_acls(filters, request_timeout=_CALL_SECONDS).values():
                deleted += map(_acl, self._admin.answer(future, "deleting ACLs"))
        return tuple(sorted(deleted))

    def broker_settings(self) -> Mapping[str, str | None] | None:
        """The settings of one broker, None for the value of one that it keeps to itself; None if the principal may not
        read them (*DescribeConfigs* on the cluster)."""
        try:
            metadata = self._admin.client.list_topics(timeout=_CALL_SECONDS)
            broker = ConfigResource(ResourceType.BROKER, str(min(metadata.brokers)))
            (future,) = self._admin.client.describe_configs([broker], request_timeout=_CALL_SECONDS).values()
            return {name: entry.value for name, entry in future.result().items()}
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return None
            raise self._admin.explain(error, "reading a broker's settings") from error


def operations_of(
    futures: Mapping[str, Future[Any]], explain: Callable[[KafkaException, str], EosError]
) -> dict[str, frozenset[Operation] | None]:
    """By topic what the principal may do with it, by the answers of ``describe_topics``.

    :returns: None for a topic that is not there, as far as one may know; nothing for one that one may not see.
    """
    found: dict[str, frozenset[Operation] | None] = {}
    for topic, future in futures.items():
        try:
            found[topic] = _named(future.result().authorized_operations)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[topic] = frozenset()
            elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[topic] = None
            else:
                raise explain(error, f"describing topic {topic}") from error
    return found


def cluster_operations(description: Any) -> frozenset[Operation]:
    """What the principal may do with the cluster, by the answer of ``describe_cluster``."""
    return _named(description.authorized_operations)


def _named(operations: Iterable[AclOperation] | None) -> frozenset[Operation]:
    return frozenset(_OPERATION_OF[each] for each in operations or () if each in _OPERATION_OF)


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        _RESOURCES[acl.resource],
        acl.name,
        _PATTERNS[acl.pattern],
        acl.principal,
        acl.host,
        _OPERATIONS[acl.operation],
        AclPermissionType.DENY if acl.is_denial else AclPermissionType.ALLOW,
    )


def _filter(acl: Acl) -> AclBindingFilter:
    binding = _binding(acl)
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _acl(binding: Any) -> Acl:
    return Acl(
        binding.principal,
        _OPERATION_OF[binding.operation],
        _RESOURCE_OF[binding.restype],
        binding.name,
        _PATTERN_OF[binding.resource_pattern_type],
        binding.host,
        binding.permission_type is AclPermissionType.DENY,
    )
