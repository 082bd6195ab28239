"""Asks the brokers for their limits of transactions, how large and busy topics are, and which groups read them."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from airflow_eos_provider.connect.properties import sink_group
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.groups import GroupSeen, groups_seen
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.questions import LATEST
from airflow_eos_provider.preflight.group_facts import BrokerFacts, Reader

#: Limit of one request, seconds.
_SECONDS = 20.0

#: So many consumer groups are asked for their offsets.
MAX_GROUPS = 2_000

#: For how long a rate is measured, seconds.
_RATE_SECONDS = 60.0


def broker_facts(kafka: Session, topics: Mapping[str, int], growing: Collection[str]) -> BrokerFacts:
    """What the brokers allow; what they do not say is not known."""
    limit, problem = None, ""
    sizes, rates = dict[str, int](), dict[str, float]()
    try:
        with kafka.admin() as admin:
            limit, problem = _least_limit(admin)
            sizes = _sizes(admin, topics)
            rates = _rates(admin, {topic: topics[topic] for topic in growing})
    except EosError as error:
        problem = problem or str(error)
    return BrokerFacts(limit, problem, sizes, rates)


def _least_limit(admin: Admin) -> tuple[int | None, str]:
    """The least ``transaction.max.timeout.ms`` of all brokers; or why it is not known."""
    found = []
    for broker in admin.cluster(_SECONDS).ports:
        try:
            found.append(int(admin.broker_settings(broker, _SECONDS)["transaction.max.timeout.ms"] or ""))
        except EosError as error:
            return None, error.found.rstrip(".")
        except (KeyError, ValueError):
            return None, "a broker does not say"
    return (min(found), "") if found else (None, "no broker is known")


def _sizes(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """``max.message.bytes`` by topic, as far as the principal may see it."""
    found = {}
    for topic in topics:
        with suppress(EosError, KeyError, TypeError, ValueError):
            found[topic] = int(admin.topic_settings([topic], _SECONDS)[topic]["max.message.bytes"])
    return found


def _rates(admin: Admin, topics: Mapping[str, int]) -> dict[str, float]:
    """Records a second by topic in the last minute; of those that could be measured."""
    places = [(topic, number) for topic, count in topics.items() for number in range(count)]
    what = "measuring how fast topics grow"
    before = admin.offsets(places, int((time.time() - _RATE_SECONDS) * 1000), _SECONDS, what)
    ends = admin.offsets(places, LATEST, _SECONDS, what)
    counts: dict[str, float] = {}
    failed = set()
    for place, first in before.items():
        end = ends[place]
        if isinstance(first, Exception) or isinstance(end, Exception):
            failed.add(place[0])
        else:
            counts[place[0]] = counts.get(place[0], 0.0) + (max(0, end - first) if first >= 0 else 0)
    return {topic: count / _RATE_SECONDS for topic, count in counts.items() if topic not in failed}


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
