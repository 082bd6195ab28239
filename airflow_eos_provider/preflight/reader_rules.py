"""Who reads the topics of a source connector, and whether it reads committed.

No broker knows a consumer's ``isolation.level``: each fetch carries it, and nothing stores it. So a group is reported
as reading uncommitted only if its configuration is available: if it is a sink connector of this Connect cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.data_text import counted, first_few
from airflow_eos_provider.preflight.client_settings import of_client
from airflow_eos_provider.preflight.findings import MARKERS, READERS, TOPICS, ConnectorFinding
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts, Reader

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
    if connector.topics and not connector.topics_unknown:
        yield TOPICS.holds(f"it writes {_some(connector.topics)}")
        return
    named = f"by its configuration {_some(connector.topics)}" if connector.topics else "none is known"
    yield TOPICS.unknown(
        f"{connector.topics_unknown or 'it has written to no topic yet'}; {named}",
        "check again when it has delivered; topic.tracking.enable of the workers lets Connect tell",
    )


def readers(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The groups that read its topics, one by one."""
    if facts.readers is None or not connector.topics:
        return
    doubts = _doubts(connector, facts)
    if doubts:
        yield READERS.unknown(
            doubts,
            "run this where they can be listed: it needs Describe on the cluster, the groups and the topics",
            expected="all consumer groups of its topics",
        )
    if connector.elsewhere:
        return
    own = set(connector.topics)
    found = [reader for reader in facts.readers if reader.topics & own]
    if not found and not doubts:
        yield READERS.holds(
            "no consumer group has offsets in its topics; Spark's structured streams, Flink, share groups and readers "
            "without a group would not show"
        )
    for reader in found:
        where = _some(tuple(sorted(reader.topics & own)))
        if reader.sink:
            yield _of_sink(facts, reader, where)
            continue
        if any(name.lower().startswith(_STUMBLE) for name in (reader.group, *reader.clients)):
            yield MARKERS.unknown(
                f"group {reader.group} looks like Spark's direct stream or Hudi, and reads {where}",
                "set spark.streaming.kafka.allowNonConsecutiveOffsets=true there, or read by Structured Streaming",
            )
        who = f"group {reader.group} reads {where}: {_members(reader)}"
        yield READERS.unknown(f"{who}; no broker knows how it reads", _ASK_OWNER)


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


def _of_sink(facts: Facts, reader: Reader, where: str) -> ConnectorFinding:
    """How a sink connector's consumers read (``Worker.baseConsumerConfigs``)."""
    config = next((one.config for one in (*facts.connectors, *facts.silent_sinks) if one.name == reader.sink), {})
    readings = of_client(config, facts.files, "consumer", ISOLATION, UNCOMMITTED)
    uncommitted = [one for one in readings.known if one.text.lower() != COMMITTED]
    override = f"set consumer.override.{ISOLATION}={COMMITTED} of {reader.sink}"
    if uncommitted and not (readings.unknown and len(readings.known) == 1 and "by default" in uncommitted[0].origin):
        return READERS.failed(
            f"sink connector {reader.sink} (group {reader.group}) reads {where} uncommitted: {uncommitted[0].origin}",
            f"{override}, or consumer.{ISOLATION} of the workers",
        )
    if readings.unknown:
        found = f"eos cannot tell how sink connector {reader.sink} reads {where}: {readings.unknown}"
        return READERS.unknown(found, override)
    return READERS.holds(f"sink connector {reader.sink} reads {where} committed")


def _members(reader: Reader) -> str:
    if not reader.clients:
        return "no member now"
    connect = " (a sink connector of a Connect cluster)" if reader.clients[0].startswith("connector-consumer-") else ""
    streams = " (Kafka Streams)" if any("-StreamThread-" in client for client in reader.clients) else ""
    return (
        f"{counted(len(reader.clients), 'member')}, {_some(reader.clients)}{connect}{streams} on {_some(reader.hosts)}"
    )


def _some(names: tuple[str, ...]) -> str:
    return first_few(dict.fromkeys(names), _SHOWN)
