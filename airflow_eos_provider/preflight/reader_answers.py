"""Asks the brokers which consumer groups read some topics, and who their members are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress

from airflow_eos_provider.connect.properties import sink_group
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.groups import GroupSeen, groups_seen
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
            seen, unknown = groups_seen(admin, most=MAX_GROUPS)
    except EosError as error:
        return (), f"the consumer groups are unknown: {error.found}"
    by_name = {group.group_id: group for group in seen}
    by_group = {sink_group(name, config): name for name, config in sinks.items()}
    found = []
    for name in sorted({*by_name, *by_group}):
        group, sink = by_name.get(name, GroupSeen(name)), by_group.get(name, "")
        own = _topics_of_sink(sinks[sink], topics) if sink else frozenset()
        read = own.union(topic for topic, _ in (*group.committed, *group.assigned)) & frozenset(topics)
        if read:
            found.append(Reader(name, read, group.clients, group.hosts, sink))
    return tuple(found), next(iter(unknown), "")


def _topics_of_sink(config: Mapping[str, str], topics: Collection[str]) -> frozenset[str]:
    """Those of some topics that a sink connector's configuration names."""
    named = {topic.strip() for topic in config.get("topics", "").split(",")}
    with suppress(re.error):  # Java's and Python's expressions differ in rare corners
        pattern = config.get("topics.regex", "")
        named |= {topic for topic in topics if pattern and re.fullmatch(pattern, topic)}
    return frozenset(named & set(topics))
