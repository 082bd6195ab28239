"""Asks the brokers for their limits of transactions, and how large and how busy topics are."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.preflight.facts import BrokerFacts, TopicFacts

#: Limit of one request, seconds.
_SECONDS = 20.0

#: For how long a rate is measured, seconds.
_RATE_SECONDS = 60.0


def broker_facts(kafka: Session, topics: Mapping[str, int], growing: Collection[str]) -> BrokerFacts:
    """What the brokers allow; what they do not say is not known."""
    limit, problem = None, ""
    sizes, rates = dict[str, int](), dict[str, float]()
    try:
        with kafka.admin() as admin:
            limit, problem = _least_limit(admin.client)
            sizes = _sizes(admin.client, topics)
            rates = _rates(admin.client, {topic: topics[topic] for topic in growing})
    except (EosError, KafkaException) as error:
        problem = problem or str(error)
    return BrokerFacts(limit, problem, {topic: TopicFacts(sizes.get(topic), rates.get(topic)) for topic in topics})


def _least_limit(client: Any) -> tuple[int | None, str]:
    """The least ``transaction.max.timeout.ms`` of all brokers; or why it is not known."""
    brokers = client.list_topics(timeout=_SECONDS).brokers
    resources = [ConfigResource(ResourceType.BROKER, str(number)) for number in brokers]
    found = []
    for future in client.describe_configs(resources, request_timeout=_SECONDS).values():
        try:
            found.append(int(future.result()["transaction.max.timeout.ms"].value))
        except KafkaException as error:
            return None, error.args[0].str()
        except (KeyError, TypeError, ValueError):
            return None, "a broker does not say"
    return (min(found), "") if found else (None, "no broker is known")


def _sizes(client: Any, topics: Iterable[str]) -> dict[str, int]:
    """``max.message.bytes`` by topic, as far as the principal may see it."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = {}
    if resources:
        for resource, future in client.describe_configs(resources, request_timeout=_SECONDS).items():
            with suppress(KafkaException, KeyError, TypeError, ValueError):
                found[resource.name] = int(future.result()["max.message.bytes"].value)
    return found


def _rates(client: Any, topics: Mapping[str, int]) -> dict[str, float]:
    """Records a second by topic in the last minute; of those that could be measured."""
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    if not places:
        return {}
    since = OffsetSpec.for_timestamp(int((time.time() - _RATE_SECONDS) * 1000))
    before = client.list_offsets(dict.fromkeys(places, since), request_timeout=_SECONDS)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    now = client.list_offsets(dict.fromkeys(places, latest), request_timeout=_SECONDS)
    ends = {(place.topic, place.partition): future for place, future in now.items()}
    counts: dict[str, float] = {}
    failed = set()
    for place, future in before.items():
        try:
            first, end = future.result().offset, ends[place.topic, place.partition].result().offset
        except KafkaException:
            failed.add(place.topic)
            continue
        counts[place.topic] = counts.get(place.topic, 0.0) + (max(0, end - first) if first >= 0 else 0)
    return {topic: count / _RATE_SECONDS for topic, count in counts.items() if topic not in failed}
