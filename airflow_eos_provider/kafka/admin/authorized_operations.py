"""The operations that brokers allow a principal, from their descriptions of topics and of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.acl_values import Operation

_OPERATION_OF = {AclOperation[operation.name]: operation for operation in Operation}


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
