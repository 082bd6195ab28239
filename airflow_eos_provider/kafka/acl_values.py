"""An ACL as the brokers keep it, and whether it answers a question: the rules of Kafka's ``StandardAuthorizer``."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_eos_provider.errors import ConfigurationError

#: The only name of the resource Cluster.
CLUSTER_NAME = "kafka-cluster"

#: Any principal, any host, any resource of a type.
ANYONE, ANYWHERE, EVERYTHING = "User:*", "*", "*"


_USER = "User:"


def require_principal(text: str, what: str) -> None:
    """Refuse what no session can have as its principal (``KafkaPrincipal``, ``DefaultKafkaPrincipalBuilder``)."""
    name = text.removeprefix(_USER)
    if name == text or not name or name != name.strip() or not name.isprintable():
        raise ConfigurationError(
            f"{what} is {text!r}, and no client can have that principal.",
            expected="User:<name>, such as User:connect or User:CN=connect,O=example",
        )


class Operation(StrEnum):
    """What a client does, by the names of ``kafka-acls`` and in the order of Kafka's numbers."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"

    def allows(self, asked: Operation) -> bool:
        """Whether who is allowed this is allowed what is asked (``StandardAuthorizerData.IMPLIES_DESCRIBE``)."""
        return asked is self or self is Operation.ALL or self in _IMPLYING.get(asked, ())

    def denies(self, asked: Operation) -> bool:
        """Whether who is denied this is denied what is asked. A denial implies nothing."""
        return asked is self or self is Operation.ALL


_IMPLYING: dict[Operation, Collection[Operation]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Resource(StrEnum):
    """What it is done to, by the names of Kafka's documents and in the order of its numbers."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


class Pattern(StrEnum):
    """How an ACL's resource is named, in the order of Kafka's numbers."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL.

    :param principal: such as ``User:connect``.
    :param host: from which; ``*`` is any.
    """

    principal: str
    operation: Operation
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    host: str = ANYWHERE
    is_denial: bool = False

    def is_about(self, principal: str) -> bool:
        """Whether it is about this principal."""
        return self.principal in (principal, ANYONE)

    def covers(self, resource: Resource, name: str, pattern: Pattern = Pattern.LITERAL) -> bool:
        """Whether it is about this resource; for a prefix: about all that begins with it."""
        if resource is not self.resource:
            return False
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name == EVERYTHING or (pattern is Pattern.LITERAL and name == self.name)

    def touches(self, resource: Resource, name: str, pattern: Pattern = Pattern.LITERAL) -> bool:
        """Whether it is about this resource; for a prefix: about something that begins with it."""
        if self.covers(resource, name, pattern):
            return True
        return resource is self.resource and pattern is Pattern.PREFIXED and self.name.startswith(name)

    def __str__(self) -> str:
        verb = "denies" if self.is_denial else "allows"
        begins = "beginning with " if self.pattern is Pattern.PREFIXED else ""
        where = "" if self.host == ANYWHERE else f" from {self.host}"
        return f"{verb} {self.principal} {self.operation} on {self.resource} {begins}{self.name}{where}"


_OPTIONS = {
    Resource.TOPIC: "--topic",
    Resource.GROUP: "--group",
    Resource.CLUSTER: "--cluster",
    Resource.TRANSACTIONAL_ID: "--transactional-id",
}


def grant_command(
    principal: str,
    operations: Iterable[Operation],
    resource: Resource,
    name: str,
    pattern: Pattern = Pattern.LITERAL,
    bootstrap_servers: str = "…",
) -> str:
    """The ``kafka-acls`` command that grants operations on one resource, to be put into a shell."""
    words = ["kafka-acls", "--bootstrap-server", bootstrap_servers, "--add", "--allow-principal", principal]
    words += [word for operation in operations for word in ("--operation", str(operation))]
    words += [_OPTIONS[resource]] if resource is Resource.CLUSTER else [_OPTIONS[resource], name]
    if pattern is Pattern.PREFIXED:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)
