"""Asks the brokers which consumer groups read some topics, and who their members are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.consumer_groups import committed_offsets, consumer_groups, described_groups
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.preflight.facts import Reader

#: So many consumer groups are asked for their offsets.
MAX_GROUPS = 2_000


def readers_of(
    kafka: Session, topics: Collection[str], sinks: Mapping[str, Mapping[str, str]]
) -> tuple[tuple[Reader, ...], str]:
    """The consumer groups of some topics; and why they are not all known."""
    if not topics:
        return (), ""
    try:
        with kafka.admin() as admin:
            names, left_out = consumer_groups(admin)
            problem = "; ".join(left_out[:1])
            if len(names) > MAX_GROUPS:
                problem = f"there are {len(names)} consumer groups, {MAX_GROUPS} were checked"
                names = names[:MAX_GROUPS]
            members, why = _members(described_groups(admin, names))
            reads, refusal = _committed(committed_offsets(admin, names))
    except EosError as error:
        return (), f"the consumer groups are unknown: {error.found}"
    except KafkaException as error:
        return (), f"the consumer groups are unknown: {error.args[0].str()}"
    by_group = {group_of_sink(name, config): name for name, config in sinks.items()}
    found = []
    for name in sorted({*names, *by_group}):
        clients, hosts, assigned = members.get(name, ((), (), frozenset()))
        sink = by_group.get(name, "")
        own = _topics_of_sink(sinks[sink], topics) if sink else frozenset()
        read = (reads.get(name, frozenset()) | assigned | own) & frozenset(topics)
        if read:
            found.append(Reader(name, read, clients, hosts, sink))
    return tuple(found), problem or why or refusal


def group_of_sink(name: str, config: Mapping[str, str]) -> str:
    """The consumer group of a sink connector (``SinkUtils.consumerGroupId``)."""
    return config.get("consumer.override.group.id") or f"connect-{name}"


def _topics_of_sink(config: Mapping[str, str], topics: Collection[str]) -> frozenset[str]:
    """Those of some topics that a sink connector's configuration names."""
    named = {topic.strip() for topic in config.get("topics", "").split(",")}
    with suppress(re.error):  # Java's and Python's expressions differ in rare corners
        pattern = config.get("topics.regex", "")
        named |= {topic for topic in topics if pattern and re.fullmatch(pattern, topic)}
    return frozenset(named & set(topics))


_Members = tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]


def _members(described: Mapping[str, Any]) -> tuple[dict[str, _Members], str]:
    """By group the client ids and hosts of its members, and the topics that are assigned to them."""
    found, why = dict[str, _Members](), ""
    for name, answer in described.items():
        if isinstance(answer, KafkaException):
            why = f"group {name} is not described: {answer.args[0].str()}"
            continue
        members = answer.members
        assigned = {place.topic for one in members if one.assignment for place in one.assignment.topic_partitions}
        clients = tuple(sorted(str(one.client_id) for one in members))
        hosts = tuple(sorted({str(one.host).lstrip("/") for one in members}))
        found[name] = (clients, hosts, frozenset(assigned))
    return found, why


def _committed(offsets: Mapping[str, Any]) -> tuple[dict[str, frozenset[str]], str]:
    """By group the topics in which it has committed offsets."""
    found, why = dict[str, frozenset[str]](), ""
    for name, answer in offsets.items():
        if isinstance(answer, KafkaException):
            why = f"the offsets of group {name} cannot be read: {answer.args[0].str()}"
            continue
        places = answer.topic_partitions or ()
        if refused := [place for place in places if place.error is not None]:
            why = f"the offsets of group {name} cannot all be read: {refused[0].topic}: {refused[0].error.str()}"
        found[name] = frozenset(place.topic for place in places if place.error is None and place.offset >= 0)
    return found, why
