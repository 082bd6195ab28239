"""confluent-kafka shows no ACLs, and no error, to who may not see them.

The broker answers ``DescribeAcls`` with an error; librdkafka drops it and hands out an empty list. Taken at its word,
that is "nobody has a right here".
"""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from tests.integration.named_listener import NamedListener
from tests.upstream.shown import StartLab

NOBODY, PASSWORD = "nobody", "nobodys"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
ONE_ACL = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:somebody",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def show(start: StartLab) -> str:
    named = NamedListener(NOBODY, PASSWORD, AUTHORIZER)
    with named.given():
        lab = start(workers=0)
    root = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
    root.create_acls([ONE_ACL])[ONE_ACL].result(60)
    assert root.describe_acls(EVERY_ACL).result(60) == [ONE_ACL]

    nobody = AdminClient({"bootstrap.servers": named.bootstrap_servers, **named.client})
    answer = nobody.describe_acls(EVERY_ACL).result(60)
    assert answer == [], answer
    try:
        with TransactionsClient(KafkaSettings.of(named.bootstrap_servers, named.client)) as client:
            client.acls()
    except ConfigurationError as error:
        return f"confluent-kafka answers {answer}; what the broker has said: {error.found}"
    raise AssertionError("the broker has not refused")
