"""Rules in the forms of other tools that grant ACLs: ``kafka-acls``, a Strimzi ``KafkaUser``, Terraform."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from typing import Any

import yaml

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.acl_values import Acl, Pattern, Resource, grant_command

#: Strimzi's and Terraform's names where they are not Kafka's own.
_STRIMZI_TYPES = {
    Resource.TOPIC: "topic",
    Resource.GROUP: "group",
    Resource.CLUSTER: "cluster",
    Resource.TRANSACTIONAL_ID: "transactionalId",
}
_TERRAFORM_TYPES = {each: "TransactionalID" if each is Resource.TRANSACTIONAL_ID else str(each) for each in Resource}

_USER = "User:"


class Form(StrEnum):
    """In which form rules are printed."""

    TABLE = "table"
    KAFKA_ACLS = "kafka-acls"
    STRIMZI = "strimzi"
    TERRAFORM = "terraform"


def written(acls: Iterable[Acl], form: Form, bootstrap_servers: str = "…") -> str:
    """ACLs as a text; an ACL that several rules want stands there once.

    :param bootstrap_servers: for ``kafka-acls``.
    """
    forms: dict[Form, Callable[[list[Acl]], str]] = {
        Form.KAFKA_ACLS: lambda each: "\n".join(kafka_acls_lines(each, bootstrap_servers)),
        Form.STRIMZI: strimzi,
        Form.TERRAFORM: terraform,
    }
    return forms[form](sorted(set(acls)))


def kafka_acls_lines(acls: Iterable[Acl], bootstrap_servers: str = "…") -> list[str]:
    """One line a resource and principal, to be put into a shell."""
    return [
        grant_command(principal, (acl.operation for acl in each), resource, name, pattern, bootstrap_servers)
        for (principal, resource, name, pattern), each in _by_resource(acls)
    ]


def strimzi(acls: Iterable[Acl]) -> str:
    """A ``KafkaUser`` for each principal."""
    documents = []
    for principal, theirs in groupby(sorted(acls), key=lambda acl: acl.principal):
        user = _user(principal)
        entries = []
        for (_, resource, name, pattern), each in _by_resource(theirs):
            said: dict[str, Any] = {"type": _STRIMZI_TYPES[resource]}
            if resource is not Resource.CLUSTER:
                said |= {"name": name, "patternType": "prefix" if pattern is Pattern.PREFIXED else "literal"}
            entries.append({"resource": said, "operations": [str(acl.operation) for acl in each]})
        documents.append(
            {
                "apiVersion": "kafka.strimzi.io/v1beta2",
                "kind": "KafkaUser",
                "metadata": {"name": user, "labels": {"strimzi.io/cluster": "my-cluster"}},
                "spec": {"authorization": {"type": "simple", "acls": entries}},
            }
        )
    return yaml.safe_dump_all(documents, sort_keys=False).rstrip("\n")


def terraform(acls: Iterable[Acl]) -> str:
    """A ``kafka_acl`` resource for each, of the provider ``Mongey/kafka``."""
    return "\n\n".join(_terraform_resources(acls))


def _terraform_resources(acls: Iterable[Acl]) -> Iterator[str]:
    for acl in [acl for _, each in _by_resource(acls) for acl in each]:
        values = {
            "resource_name": acl.name,
            "resource_type": _TERRAFORM_TYPES[acl.resource],
            "resource_pattern_type_filter": "Prefixed" if acl.pattern is Pattern.PREFIXED else "Literal",
            "acl_principal": acl.principal,
            "acl_host": acl.host,
            "acl_operation": str(acl.operation),
            "acl_permission_type": "Allow",
        }
        lines = "\n".join(f"  {name:<28} = {_terraform_text(value)}" for name, value in values.items())
        yield f'resource "kafka_acl" "{_terraform_name(acl)}" {{\n{lines}\n}}'


def _terraform_text(value: str) -> str:
    return json.dumps(value).replace("${", "$${").replace("%{", "%%{")


def _terraform_name(acl: Acl) -> str:
    """A name that two ACLs never share: what a name of Terraform's cannot hold is written as its code."""
    parts = (acl.principal.removeprefix(_USER), acl.resource, acl.pattern, acl.name, acl.operation)
    return "acl_" + "__".join(re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", part) for part in parts)


def _by_resource(acls: Iterable[Acl]) -> Iterator[tuple[tuple[str, Resource, str, Pattern], list[Acl]]]:
    def key(acl: Acl) -> tuple[str, Resource, str, Pattern]:
        return acl.principal, acl.resource, acl.name, acl.pattern

    for found, each in groupby(sorted(acls, key=key), key=key):
        yield found, sorted(each)


def _user(principal: str) -> str:
    if not principal.startswith(_USER):
        raise ConfigurationError(f"Strimzi has no KafkaUser for {principal}.", expected="User:<name>")
    return principal.removeprefix(_USER).removeprefix("CN=")
