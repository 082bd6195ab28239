"""The consumer groups that the brokers know, and what keeps a principal from seeing all of them."""

from __future__ import annotations

import secrets

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from airflow_eos_provider.kafka.clients import CONNECT_SECONDS, QuietAdmin

#: Limit of a request, seconds.
_SECONDS = 15.0


def consumer_groups(admin: QuietAdmin) -> tuple[list[str], list[str]]:
    """Names of the groups, and what keeps them from being all.

    :raises EosError: no broker answers, or refuses these credentials.
    """
    hidden = hidden_groups(admin)
    listed = admin.answer(admin.client.list_consumer_groups(request_timeout=_SECONDS), "listing consumer groups")
    unknown = [*([hidden] if hidden else []), *(f"groups of a broker: {error}" for error in listed.errors or ())]
    return sorted(group.group_id for group in listed.valid or ()), unknown


def hidden_groups(admin: QuietAdmin) -> str:
    """Why there may be groups that are not listed; empty if there are none.

    Brokers leave out what a principal may not describe, and do not say so (``KafkaApis.handleListGroupsRequest``). So a
    group that nobody has is asked for. A rule that denies some groups alone cannot be noticed.

    :raises EosError: the brokers do not tell.
    """
    described = admin.client.describe_cluster(include_authorized_operations=True, request_timeout=CONNECT_SECONDS)
    allowed = admin.answer(described, "describing the cluster").authorized_operations
    if AclOperation.DESCRIBE in (allowed or ()):
        return ""
    nobody = secrets.token_hex(12)
    try:
        admin.client.describe_consumer_groups([nobody], request_timeout=_SECONDS)[nobody].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            who = admin.settings.who
            return f"there may be groups that {who} may not see (Describe on every group, or on the cluster)"
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise admin.explain(error, "describing a group") from error
    return ""
