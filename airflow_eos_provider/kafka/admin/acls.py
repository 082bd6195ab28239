"""ACLs read, created and deleted through kafka-python.

confluent-kafka 2.16 returns no ACLs, and no error, to a principal that may not read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import kafka.errors
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from airflow_eos_provider.kafka.acl_values import Acl, Pattern, Resource
from airflow_eos_provider.kafka.admin.client import OPERATIONS, Admin

#: What Kafka's ``ResourceType``, ``PatternType``, ``AclOperation`` and ``AclPermissionType`` have for numbers.
_RESOURCES = dict(enumerate(Resource, 2))
_PATTERNS = dict(enumerate(Pattern, 3))
_ANY = 1
_DENY = 2
_ALLOW = 3

_OPERATION_NUMBERS = {operation: number for number, operation in OPERATIONS.items()}
_RESOURCE_NUMBERS = {resource: number for number, resource in _RESOURCES.items()}
_PATTERN_NUMBERS = {pattern: number for number, pattern in _PATTERNS.items()}

#: How a broker begins when it refuses: with Java's text of our request, addresses of its objects included.
_REQUEST = re.compile(r"Request Request\(.*\) (?=needs )", re.DOTALL)


async def read_acls(admin: Admin, deadline: float) -> tuple[Acl, ...] | None:
    """All ACLs on topics, groups, the cluster and transactional ids; None where the brokers have no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await _answer(admin, request, deadline)
    if answer.error_code == kafka.errors.SecurityDisabledError.errno:
        return None
    if answer.error_code:
        raise _error(answer)
    return tuple(
        sorted(
            _acl(resource, each)
            for resource in answer.resources
            if resource.resource_type in _RESOURCES
            for each in resource.acls
            if each.operation in OPERATIONS
        )
    )


async def create_acls(admin: Admin, wanted: Iterable[Acl], deadline: float) -> None:
    """Create ACLs; one that exists stays as it is."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=_RESOURCE_NUMBERS[acl.resource],
            resource_name=acl.name,
            resource_pattern_type=_PATTERN_NUMBERS[acl.pattern],
            principal=acl.principal,
            host=acl.host,
            operation=_OPERATION_NUMBERS[acl.operation],
            permission_type=_permission(acl),
        )
        for acl in wanted
    ]
    _check((await _answer(admin, CreateAclsRequest(creations=creations), deadline)).results)


async def delete_acls(admin: Admin, wanted: Iterable[Acl], deadline: float) -> tuple[Acl, ...]:
    """Delete exactly these ACLs, and return those that existed."""
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=_RESOURCE_NUMBERS[acl.resource],
            resource_name_filter=acl.name,
            pattern_type_filter=_PATTERN_NUMBERS[acl.pattern],
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=_OPERATION_NUMBERS[acl.operation],
            permission_type=_permission(acl),
        )
        for acl in wanted
    ]
    results = (await _answer(admin, DeleteAclsRequest(filters=filters), deadline)).filter_results
    deleted = [acl for result in results for acl in result.matching_acls]
    _check([*results, *deleted])
    return tuple(sorted(_acl(acl, acl) for acl in deleted))


async def _answer(admin: Admin, request: Any, deadline: float) -> Any:
    return await admin.wire.answer(request, admin.wire.any_broker(), deadline)


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        principal=entry.principal,
        operation=OPERATIONS[entry.operation],
        resource=_RESOURCES[resource.resource_type],
        name=resource.resource_name,
        pattern=_PATTERNS[resource.pattern_type],
        host=entry.host,
        is_denial=entry.permission_type == _DENY,
    )


def _permission(acl: Acl) -> int:
    return _DENY if acl.is_denial else _ALLOW


def _check(results: Iterable[Any]) -> None:
    for result in results:
        if result.error_code:
            raise _error(result)


def _error(answer: Any) -> Exception:
    return kafka.errors.for_code(answer.error_code)(_REQUEST.sub("it ", answer.error_message or ""))  # type: ignore[no-any-return]
