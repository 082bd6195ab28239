"""Times and sizes of a connector's transactions against what the brokers allow."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest_calls import NO_WORDS
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.facts import ConnectorFacts, Facts
from airflow_eos_provider.preflight.findings import (
    FENCING,
    INTERVAL,
    MANY_TASKS,
    NAME,
    RECORD_SIZE,
    TIMEOUT,
    TRANSACTION_SIZE,
    ConnectorFinding,
    Kind,
    Severity,
    finding,
    passes,
)
from airflow_eos_provider.preflight.settings import Readings, of_client, of_connector, of_worker

#: Connect fences with this timeout (``Worker.fenceZombies``), and Kafka's admin client asks the brokers for it as the
#: transaction timeout (since 3.7.1 and 3.8.0, KAFKA-16047), milliseconds.
FENCING_MS = 90_000

#: Kafka's admin client fences about one task a second, so this many within :data:`FENCING_MS`.
MANY = 90

#: How often a coordinator looks for transactions past their timeout, milliseconds
#: (``transaction.abort.timed.out.transaction.cleanup.interval.ms``).
ABORT_MS = 10_000

MAX_TIMEOUT = "transaction.max.timeout.ms"
_TIMEOUT_PROPERTY, _TIMEOUT_DEFAULT = "transaction.timeout.ms", "60000"
_BOUNDARY_INTERVAL = "transaction.boundary.interval.ms"
_FLUSH_INTERVAL, _FLUSH_DEFAULT = "offset.flush.interval.ms", "60000"
_REQUEST_SIZE, _REQUEST_DEFAULT = "max.request.size", "1048576"


def timeout(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The brokers allow the transaction timeout of its tasks."""
    given = _timeouts(connector, facts)
    allowed = _allowed(connector, facts)
    if isinstance(allowed, str):
        yield _unknown(connector, TIMEOUT, Severity.BLOCKS, allowed)
        return
    above = [one for one in given.known if one.number is not None and one.number > allowed]
    if above:
        yield finding(
            connector.name,
            TIMEOUT.name,
            Severity.BLOCKS,
            Verdict.FAIL,
            f"{above[0].origin}, and the brokers allow {MAX_TIMEOUT}={allowed}",
            f"at most {allowed} ms",
            f"lower {_TIMEOUT_PROPERTY} of its producers, or raise {MAX_TIMEOUT} of the brokers",
            f"DescribeConfigs of the brokers: {MAX_TIMEOUT}",
        )
    elif given.unknown:
        yield _unknown(connector, TIMEOUT, Severity.BLOCKS, given.unknown)
    else:
        yield passes(connector.name, TIMEOUT, f"{_origins(given)}; the brokers allow {allowed}")


def fencing(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The brokers allow what Connect asks for when it fences."""
    several = _tasks(connector) > 1
    allowed = _allowed(connector, facts)
    if isinstance(allowed, str):
        yield _unknown(connector, FENCING, Severity.BLOCKS if several else Severity.WARNS, allowed)
        return
    if allowed >= FENCING_MS:
        yield passes(connector.name, FENCING, f"the brokers allow {MAX_TIMEOUT}={allowed}")
        return
    yield finding(
        connector.name,
        FENCING.name,
        Severity.BLOCKS if several else Severity.WARNS,
        Verdict.FAIL,
        f"the brokers allow {MAX_TIMEOUT}={allowed}, and Connect fences with {FENCING_MS} ms"
        + ("" if several else "; one task that follows one needs no fencing"),
        f"at least {FENCING_MS} ms",
        f"raise {MAX_TIMEOUT} of the brokers",
        f"DescribeConfigs of the brokers: {MAX_TIMEOUT}",
    )


def name(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """A worker can ask the leader for a fencing round (``PUT /connectors/<name>/fence``, seen with 4.3.1)."""
    if len(connector.answers) < 2 or not connector.topics_unknown.endswith(f"with 400: {NO_WORDS}"):
        yield passes(connector.name, NAME, "the leader fences for the tasks of every worker")
        return
    yield finding(
        connector.name,
        NAME.name,
        Severity.BLOCKS,
        Verdict.FAIL,
        "the workers' web server takes no path with its name, so no worker can ask the leader to fence its tasks",
        r"a name without / \ and %",
        "REST cannot delete it: remove it by a record without a value under the key "
        f"'connector-{connector.name}' in the config topic. Before, create it stopped under another name; afterwards "
        f"'eos offsets restore --from' gives that its offsets",
        connector.topics_unknown,
    )


def many_tasks(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """All tasks can be fenced in time."""
    tasks = _tasks(connector)
    if tasks <= MANY:
        yield passes(connector.name, MANY_TASKS, f"{tasks} tasks")
        return
    yield finding(
        connector.name,
        MANY_TASKS.name,
        Severity.WARNS,
        Verdict.FAIL,
        f"{tasks} tasks, and Connect fences about one a second within {FENCING_MS // 1000} s",
        f"at most {MANY} tasks",
        "split it into several connectors; or after each change of its task configs: 'eos fencing apply'",
        "its tasks and tasks.max",
    )


def interval(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """A transaction that ends with an interval is over before its timeout."""
    boundary = connector.config.get("transaction.boundary", "").lower()
    if any(references(boundary)):
        yield _unknown(connector, INTERVAL, Severity.BLOCKS, "a config provider supplies transaction.boundary")
    if boundary != "interval":
        return
    intervals, timeouts = _intervals(connector, facts), _timeouts(connector, facts)
    pairs = [(i, t) for i in intervals.known for t in timeouts.known if i.number is not None and t.number is not None]
    over = [(i, t) for i, t in pairs if (i.number or 0) >= (t.number or 0)]
    if over:
        worst_interval, worst_timeout = max(over, key=lambda pair: (pair[0].number or 0) - (pair[1].number or 0))
        excess = (worst_interval.number or 0) - (worst_timeout.number or 0)
        yield finding(
            connector.name,
            INTERVAL.name,
            Severity.BLOCKS if excess > ABORT_MS else Severity.WARNS,
            Verdict.FAIL,
            f"{worst_interval.origin}, with {worst_timeout.origin}: a transaction may reach its timeout first",
            "an interval that is shorter than the timeout by as long as a batch takes",
            f"shorten {_BOUNDARY_INTERVAL}, or set producer.override.{_TIMEOUT_PROPERTY} higher",
            "its configuration and the workers' files",
        )
    elif unknown := intervals.unknown or timeouts.unknown:
        yield _unknown(connector, INTERVAL, Severity.BLOCKS, unknown)
    else:
        yield passes(connector.name, INTERVAL, f"{_origins(intervals)}, with {_origins(timeouts)}")


def record_size(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The topics take the largest record that its producers send."""
    sizes = of_client(connector.config, facts.files, "producer", _REQUEST_SIZE, _REQUEST_DEFAULT).numbers
    largest = max((one for one in sizes.known if one.number is not None), key=lambda one: one.number or 0, default=None)
    limits = {
        topic: limit
        for topic in connector.topics
        if topic in facts.brokers.topics and (limit := facts.brokers.topics[topic].max_message_bytes) is not None
    }
    if connector.elsewhere or not connector.topics:
        return
    smaller = sorted(topic for topic, limit in limits.items() if largest is not None and limit < (largest.number or 0))
    unknown_topics = [topic for topic in connector.topics if topic not in limits]
    if largest is None or (not smaller and (unknown_topics or sizes.unknown)):
        why = sizes.unknown or f"max.message.bytes of {unknown_topics[0]} is unknown"
        yield _unknown(connector, RECORD_SIZE, Severity.WARNS, why)
        return
    if not smaller:
        yield passes(connector.name, RECORD_SIZE, f"{largest.origin}; its topics take as much")
        return
    yield finding(
        connector.name,
        RECORD_SIZE.name,
        Severity.WARNS,
        Verdict.FAIL,
        f"{largest.origin}, and {smaller[0]} takes max.message.bytes={limits[smaller[0]]}"
        + (f" ({len(smaller)} topics take less)" if len(smaller) > 1 else ""),
        "max.message.bytes of each topic not below max.request.size",
        f"raise max.message.bytes of the topic, or lower producer.override.{_REQUEST_SIZE}",
        "DescribeConfigs of its topics",
    )


def transaction_size(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """How large its transactions will be, as far as that can be known."""
    boundary = connector.config.get("transaction.boundary", "poll").lower()
    found, evidence = {
        "poll": ("one batch of the connector each: its own settings say how many records that is at most", ""),
        "connector": ("as large as the connector makes them", ""),
    }.get(boundary, ("", ""))
    verdict = Verdict.INCONCLUSIVE
    if boundary == "interval":
        rate = _rate(connector, facts)
        seconds = [(one.number or 0) / 1000 for one in _intervals(connector, facts).known if one.number]
        if rate is None or not seconds:
            found = "all records of an interval; the recent rate of its topics was not measured"
        else:
            verdict = Verdict.PASS
            found = (
                f"about {rate * max(seconds):,.0f} records in all tasks' transactions of an interval of "
                f"{max(seconds):g} s, at the rate of the last minute ({rate:,.1f} a second)"
            )
            evidence = "ListOffsets of its topics, now and a minute ago; other writers and markers count too"
    remedy = "check transaction-size-max of its tasks (JMX, source-task-metrics) once it runs"
    if found:
        yield finding(connector.name, TRANSACTION_SIZE.name, Severity.INFORMS, verdict, found, "", remedy, evidence)


def _rate(connector: ConnectorFacts, facts: Facts) -> float | None:
    """Records a second in all its topics; None if one was not measured."""
    rates = [
        facts.brokers.topics[topic].records_per_second if topic in facts.brokers.topics else None
        for topic in connector.topics
    ]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _timeouts(connector: ConnectorFacts, facts: Facts) -> Readings:
    return of_client(connector.config, facts.files, "producer", _TIMEOUT_PROPERTY, _TIMEOUT_DEFAULT).numbers


def _intervals(connector: ConnectorFacts, facts: Facts) -> Readings:
    own = connector.config.get(_BOUNDARY_INTERVAL, "")
    if own:
        return of_connector(_BOUNDARY_INTERVAL, own).numbers
    return of_worker(facts.files, _FLUSH_INTERVAL, _FLUSH_DEFAULT).numbers


def _tasks(connector: ConnectorFacts) -> int:
    """How many tasks it has, or may have where it has none now."""
    if connector.tasks:
        return connector.tasks
    limit = connector.config.get("tasks.max", "1")
    return int(limit) if limit.isascii() and limit.isdecimal() else 1


def _allowed(connector: ConnectorFacts, facts: Facts) -> int | str:
    """``transaction.max.timeout.ms``, or why it is not known."""
    if connector.elsewhere:
        return f"its producers write to {connector.elsewhere}, whose settings are not checked"
    if facts.brokers.max_timeout_ms is None:
        return f"{MAX_TIMEOUT} of the brokers is unknown: {facts.brokers.problem or 'they do not say'}"
    return facts.brokers.max_timeout_ms


def _unknown(connector: ConnectorFacts, kind: Kind, severity: Severity, why: str) -> ConnectorFinding:
    return finding(
        connector.name,
        kind.name,
        severity,
        Verdict.INCONCLUSIVE,
        why,
        remedy="run this where that can be read: with DescribeConfigs on cluster and topics, and the workers' files",
    )


def _origins(readings: Readings) -> str:
    return ", ".join(reading.origin for reading in readings.known)
