"""Who reads the topics of a source connector, and whether it reads committed.

No broker knows a consumer's ``isolation.level``: each fetch carries it, and nothing stores it. So a group is reported
as reading uncommitted only if its configuration is available: if it is a sink connector of this Connect cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.facts import ConnectorFacts, Facts, Reader
from airflow_eos_provider.preflight.findings import (
    MARKERS,
    READERS,
    TOPICS,
    ConnectorFinding,
    Severity,
    finding,
    passes,
)
from airflow_eos_provider.preflight.settings import Readings, of_client

ISOLATION, COMMITTED, UNCOMMITTED = "isolation.level", "read_committed", "read_uncommitted"

#: So many names are shown.
_SHOWN = 3

#: How the groups and clients of readers begin, that expect no gap between two offsets by default.
_STUMBLE = ("spark-executor", "hudi", "hoodie", "deltastreamer")

_ASK_OWNER = (
    f"ask its owner for {ISOLATION} (Java: {UNCOMMITTED} by default, librdkafka: {COMMITTED}; Kafka Streams: "
    "uncommitted unless processing.guarantee is exactly_once_v2)"
)


def topics(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """It is known which topics the connector writes."""
    if connector.topics and not connector.topics_unknown:
        yield passes(connector.name, TOPICS, f"it writes {_some(connector.topics)}", "GET /connectors/…/topics")
        return
    named = f"by its configuration {_some(connector.topics)}" if connector.topics else "none is known"
    yield finding(
        connector.name,
        TOPICS.name,
        Severity.INFORMS,
        Verdict.INCONCLUSIVE,
        f"{connector.topics_unknown or 'it has written to no topic yet'}; {named}",
        "the topics that it writes",
        "check again when it has delivered; topic.tracking.enable of the workers lets Connect tell",
        "GET /connectors/…/topics",
    )


def readers(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The groups that read its topics, one by one."""
    if facts.readers is None or not connector.topics:
        return
    doubts = _doubts(connector, facts)
    if doubts:
        yield finding(
            connector.name,
            READERS.name,
            Severity.WARNS,
            Verdict.INCONCLUSIVE,
            doubts,
            "all consumer groups of its topics",
            "run this where they can be listed: it needs Describe on the cluster, the groups and the topics",
            "ListGroups, OffsetFetch",
        )
    if connector.elsewhere:
        return
    own = set(connector.topics)
    found = [reader for reader in facts.readers if reader.topics & own]
    if not found and not doubts:
        yield passes(
            connector.name,
            READERS,
            "no consumer group has offsets in its topics; Spark's structured streams, Flink, share groups and readers "
            "without a group would not show",
            "ListGroups, OffsetFetch",
        )
    for reader in found:
        where = _some(tuple(sorted(reader.topics & own)))
        if reader.sink:
            yield _of_sink(connector, facts, reader, where)
            continue
        if stumbles(reader):
            yield _of_markers(connector, reader, where)
        yield finding(
            connector.name,
            READERS.name,
            Severity.WARNS,
            Verdict.INCONCLUSIVE,
            f"group {reader.group} reads {where}: {_members(reader)}; no broker knows how it reads",
            COMMITTED,
            _ASK_OWNER,
            "ListGroups, DescribeGroups, OffsetFetch",
        )


def _doubts(connector: ConnectorFacts, facts: Facts) -> str:
    """Why not all of its readers are known; empty if they are."""
    if connector.elsewhere:
        return f"it writes to {connector.elsewhere}, whose readers are not checked"
    if connector.unseen:
        return (
            facts.readers_unknown
            or f"the brokers do not show {_some(connector.unseen)}: gone, or the principal may not describe it"
        )
    if connector.topics_unknown:
        return f"who reads its other topics: {connector.topics_unknown}"
    return facts.readers_unknown


def stumbles(reader: Reader) -> bool:
    """Whether a group looks like one of the readers that expect offsets without gaps."""
    names = (reader.group, *reader.clients)
    return any(name.lower().startswith(_STUMBLE) for name in names)


def isolation_of_sink(config: dict[str, str], facts: Facts) -> Readings:
    """How a sink connector's consumers read (``Worker.baseConsumerConfigs``)."""
    return of_client(config, facts.files, "consumer", ISOLATION, UNCOMMITTED)


def _of_sink(connector: ConnectorFacts, facts: Facts, reader: Reader, where: str) -> ConnectorFinding:
    config = next((dict(one.config) for one in (*facts.connectors, *facts.silent_sinks) if one.name == reader.sink), {})
    readings = isolation_of_sink(config, facts)
    uncommitted = [one for one in readings.known if one.text.lower() != COMMITTED]
    if uncommitted and not (readings.unknown and len(readings.known) == 1 and "by default" in uncommitted[0].origin):
        return finding(
            connector.name,
            READERS.name,
            Severity.WARNS,
            Verdict.FAIL,
            f"sink connector {reader.sink} (group {reader.group}) reads {where} uncommitted: {uncommitted[0].origin}",
            COMMITTED,
            f"set consumer.override.{ISOLATION}={COMMITTED} of {reader.sink}, or consumer.{ISOLATION} of the workers",
            "its configuration and the workers' files",
        )
    if readings.unknown:
        return finding(
            connector.name,
            READERS.name,
            Severity.WARNS,
            Verdict.INCONCLUSIVE,
            f"eos cannot tell how sink connector {reader.sink} reads {where}: {readings.unknown}",
            COMMITTED,
            f"set consumer.override.{ISOLATION}={COMMITTED} of {reader.sink}",
        )
    return passes(connector.name, READERS, f"sink connector {reader.sink} reads {where} committed")


def _of_markers(connector: ConnectorFacts, reader: Reader, where: str) -> ConnectorFinding:
    return finding(
        connector.name,
        MARKERS.name,
        Severity.WARNS,
        Verdict.INCONCLUSIVE,
        f"group {reader.group} looks like Spark's direct stream or Hudi, and reads {where}",
        "a reader that takes gaps between offsets",
        "set spark.streaming.kafka.allowNonConsecutiveOffsets=true there, or read by Structured Streaming",
        "the names of the group and its clients",
    )


def _members(reader: Reader) -> str:
    if not reader.clients:
        return "no member now"
    connect = " (a sink connector of a Connect cluster)" if reader.clients[0].startswith("connector-consumer-") else ""
    streams = " (Kafka Streams)" if any("-StreamThread-" in client for client in reader.clients) else ""
    return (
        f"{counted(len(reader.clients), 'member')}, {_some(reader.clients)}{connect}{streams} on {_some(reader.hosts)}"
    )


def _some(names: tuple[str, ...]) -> str:
    unique = tuple(dict.fromkeys(names))
    more = f" and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    return ", ".join(unique[:_SHOWN]) + more
