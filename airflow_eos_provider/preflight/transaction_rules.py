"""Times and sizes of a connector's transactions against what the brokers allow."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest import NO_WORDS
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.client_settings import Readings, of_client, of_connector, of_worker
from airflow_eos_provider.preflight.findings import (
    FENCING,
    INTERVAL,
    MANY_TASKS,
    NAME,
    RECORD_SIZE,
    TIMEOUT,
    TRANSACTION_SIZE,
    ConnectorFinding,
    Severity,
)
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts

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
    given = _timeouts(connector, facts)
    allowed = _allowed(connector, facts)
    if isinstance(allowed, str):
        yield TIMEOUT.unreadable(allowed)
    elif above := [one for one in given.known if one.number is not None and one.number > allowed]:
        yield TIMEOUT.failed(
            f"{above[0].origin}, and the brokers allow {MAX_TIMEOUT}={allowed}",
            f"lower {_TIMEOUT_PROPERTY} of its producers, or raise {MAX_TIMEOUT} of the brokers",
            expected=f"at most {allowed} ms",
        )
    elif given.unknown:
        yield TIMEOUT.unreadable(given.unknown)
    else:
        yield TIMEOUT.holds(f"{_origins(given)}; the brokers allow {allowed}")


def fencing(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The brokers allow what Connect asks for when it fences."""
    severity = Severity.BLOCKS if _tasks(connector) > 1 else Severity.WARNS
    allowed = _allowed(connector, facts)
    if isinstance(allowed, str):
        yield FENCING.unreadable(allowed, severity)
    elif allowed >= FENCING_MS:
        yield FENCING.holds(f"the brokers allow {MAX_TIMEOUT}={allowed}")
    else:
        needless = "; one task that follows one needs no fencing" if severity is Severity.WARNS else ""
        yield FENCING.failed(
            f"the brokers allow {MAX_TIMEOUT}={allowed}, and Connect fences with {FENCING_MS} ms{needless}",
            f"raise {MAX_TIMEOUT} of the brokers",
            severity=severity,
        )


def name(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """A worker can ask the leader for a fencing round (``PUT /connectors/<name>/fence``, seen with 4.3.1)."""
    if len(connector.answers) < 2 or not connector.topics_unknown.endswith(f"with 400: {NO_WORDS}"):
        yield NAME.holds("the leader fences for the tasks of every worker")
        return
    yield NAME.failed(
        "the workers' web server takes no path with its name, so no worker can ask the leader to fence its tasks "
        f"({connector.topics_unknown})",
        "REST cannot delete it: remove it by a record without a value under the key "
        f"'connector-{connector.name}' in the config topic. Before, create it stopped under another name; afterwards "
        "'eos offsets restore --from' gives that its offsets",
    )


def many_tasks(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    tasks = _tasks(connector)
    if tasks <= MANY:
        yield MANY_TASKS.holds(f"{tasks} tasks")
        return
    yield MANY_TASKS.failed(
        f"{tasks} tasks, and Connect fences about one a second within {FENCING_MS // 1000} s",
        "split it into several connectors; or after each change of its task configs: 'eos fencing apply'",
    )


def interval(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """A transaction that ends with an interval is over before its timeout."""
    boundary = connector.config.get("transaction.boundary", "").lower()
    if any(references(boundary)):
        yield INTERVAL.unreadable("a config provider supplies transaction.boundary")
    if boundary != "interval":
        return
    intervals, timeouts = _intervals(connector, facts), _timeouts(connector, facts)
    pairs = [((i.number or 0) - (t.number or 0), i, t) for i in intervals.known for t in timeouts.known]
    excess, longest, limit = max(pairs, key=lambda pair: pair[0], default=(-1, None, None))
    if longest and limit and excess >= 0:
        yield INTERVAL.failed(
            f"{longest.origin}, with {limit.origin}: a transaction may reach its timeout first",
            f"shorten {_BOUNDARY_INTERVAL}, or set producer.override.{_TIMEOUT_PROPERTY} higher",
            severity=Severity.BLOCKS if excess > ABORT_MS else Severity.WARNS,
        )
    elif unknown := intervals.unknown or timeouts.unknown:
        yield INTERVAL.unreadable(unknown)
    else:
        yield INTERVAL.holds(f"{_origins(intervals)}, with {_origins(timeouts)}")


def record_size(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """The topics take the largest record that its producers send."""
    if connector.elsewhere or not connector.topics:
        return
    sizes = of_client(connector.config, facts.files, "producer", _REQUEST_SIZE, _REQUEST_DEFAULT).numbers
    largest = max(sizes.known, key=lambda one: one.number or 0, default=None)
    limits = facts.brokers.max_message_bytes
    size = (largest.number if largest else None) or 0
    smaller = sorted(topic for topic in connector.topics if limits.get(topic, size) < size)
    unknown_topics = [topic for topic in connector.topics if topic not in limits]
    if largest is None or (not smaller and (unknown_topics or sizes.unknown)):
        why = sizes.unknown or f"max.message.bytes of {unknown_topics[0]} is unknown"
        yield RECORD_SIZE.unreadable(why)
    elif not smaller:
        yield RECORD_SIZE.holds(f"{largest.origin}; its topics take as much")
    else:
        yield RECORD_SIZE.failed(
            f"{largest.origin}, and {smaller[0]} takes max.message.bytes={limits[smaller[0]]}"
            + (f" ({len(smaller)} topics take less)" if len(smaller) > 1 else ""),
            f"raise max.message.bytes of the topic, or lower producer.override.{_REQUEST_SIZE}",
        )


def transaction_size(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    """How large its transactions will be, as far as that can be known."""
    verdict = Verdict.INCONCLUSIVE
    match connector.config.get("transaction.boundary", "poll").lower():
        case "poll":
            found = "one batch of the connector each: its own settings say how many records that is at most"
        case "connector":
            found = "as large as the connector makes them"
        case "interval":
            rate = _rate(connector, facts)
            seconds = [(one.number or 0) / 1000 for one in _intervals(connector, facts).known if one.number]
            found = "all records of an interval; the recent rate of its topics was not measured"
            if rate is not None and seconds:
                verdict = Verdict.PASS
                found = (
                    f"about {rate * max(seconds):,.0f} records in all tasks' transactions of an interval of "
                    f"{max(seconds):g} s, at the rate of the last minute ({rate:,.1f} a second)"
                )
        case _:
            return
    remedy = "check transaction-size-max of its tasks (JMX, source-task-metrics) once it runs"
    yield TRANSACTION_SIZE.finding(verdict, found, remedy)


def _rate(connector: ConnectorFacts, facts: Facts) -> float | None:
    """Records a second in all its topics; None if one was not measured."""
    rates = facts.brokers.rates
    is_measured = connector.topics and all(topic in rates for topic in connector.topics)
    return sum(rates[topic] for topic in connector.topics) if is_measured else None


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


def _origins(readings: Readings) -> str:
    return ", ".join(reading.origin for reading in readings.known)
