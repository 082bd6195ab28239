"""Settings of a connector's clients that the mode ``enabled`` ignores or does not support.

Rules: ``Worker.exactlyOnceSourceTaskProducerConfigs``, ``exactlyOnceSourceOffsetsConsumerConfigs`` (forced by
``ConnectUtils.ensureProperty``), and ``ProducerConfig.postProcessAndValidateIdempotenceConfigs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow_eos_provider.connect.topics.internal_topics import TOPICS
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.client_settings import Reading, of_client
from airflow_eos_provider.preflight.findings import IGNORED, INTERNAL_TOPICS, PRODUCER, ConnectorFinding
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts

#: Client and setting, and what the mode sets instead.
FORCED = {
    ("producer", "transactional.id"): "<group>-<connector>-<task>",
    ("producer", "enable.idempotence"): "true",
    ("consumer", "isolation.level"): "read_committed",
}

FLUSH_TIMEOUT = "offset.flush.timeout.ms"

#: Settings of an idempotent producer with Connect's defaults, and whether it bears a value.
_BEARS: dict[str, tuple[str, Callable[[Reading], bool], str]] = {
    "acks": ("all", lambda one: one.text in ("all", "-1"), "all"),
    "retries": ("2147483647", lambda one: one.number != 0, "more than 0"),
    "max.in.flight.requests.per.connection": ("1", lambda one: (one.number or 0) <= 5, "at most 5"),
}


def ignored(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    for (client, name), value in FORCED.items():
        given = connector.config.get(f"{client}.override.{name}")
        if given is not None and given != value:
            yield IGNORED.failed(
                f"{client}.override.{name} is ignored, {name}={value} is used", "take it out of its configuration"
            )


def ignored_of_workers(facts: Facts) -> Iterator[ConnectorFinding]:
    """Settings of the workers' files that have no effect on source connectors."""
    for (client, name), value in FORCED.items():
        workers = [w for w, known in facts.files.properties.items() if known.get(f"{client}.{name}", value) != value]
        if workers:
            what = "source connectors" if client == "consumer" else "tasks of source connectors"
            yield IGNORED.failed(
                f"{client}.{name} in the file of {', '.join(workers)} is ignored for {what}, {name}={value} is used",
                "take it out of the file; isolation.level still counts for sink connectors"
                if client == "consumer"
                else "take it out of the file",
            )
    workers = [worker for worker, known in facts.files.properties.items() if FLUSH_TIMEOUT in known]
    if workers:
        yield IGNORED.failed(
            f"{FLUSH_TIMEOUT} in the file of {', '.join(workers)} is ignored for source connectors: offsets are "
            "written in their transactions",
            "set producer.override.transaction.timeout.ms of a connector instead",
        )


def internal_topics(facts: Facts) -> Iterator[ConnectorFinding]:
    """All workers have the same internal topics, as far as their files can be read."""
    for topic in map(facts.files.shared, TOPICS):
        if topic.problem:
            verdict = Verdict.FAIL if topic.differing else Verdict.INCONCLUSIVE
            yield INTERNAL_TOPICS.finding(verdict, topic.problem, topic.remedy)


def producer(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The producers' settings allow transactions."""
    unknown = ""
    failed = False
    for name, (default, bears, wanted) in _BEARS.items():
        given = of_client(connector.config, facts.files, "producer", name, default)
        unknown = unknown or given.unknown
        for one in given.known:
            if not bears(one):
                failed = True
                yield PRODUCER.failed(
                    f"{one.origin}: a producer with transactions does not start with that",
                    f"take {name} out of its configuration or the worker's file",
                    expected=f"{name}: {wanted}",
                )
    if unknown:
        yield PRODUCER.unknown(unknown)
    elif not failed:
        yield PRODUCER.holds("acks, retries and requests in flight allow transactions")
