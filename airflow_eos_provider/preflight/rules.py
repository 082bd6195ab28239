"""All rules, and which of them apply to a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from airflow_eos_provider.preflight import answer_rules, reader_rules, setting_rules, transaction_rules
from airflow_eos_provider.preflight.facts import ConnectorFacts, Facts
from airflow_eos_provider.preflight.findings import SINK, ConnectorFinding, worst_first

Rule = Callable[[ConnectorFacts, Facts], Iterable[ConnectorFinding]]

#: Asked in every mode, of sinks too.
OF_ANY: tuple[Rule, ...] = (answer_rules.plugin, answer_rules.validation)

#: Asked of source connectors in a mode that runs exactly-once tasks.
OF_SOURCES: tuple[Rule, ...] = (
    answer_rules.overrides,
    answer_rules.support,
    answer_rules.boundary,
    transaction_rules.interval,
    transaction_rules.timeout,
    transaction_rules.fencing,
    transaction_rules.name,
    transaction_rules.many_tasks,
    setting_rules.producer,
    setting_rules.ignored,
    transaction_rules.record_size,
    transaction_rules.transaction_size,
    reader_rules.topics,
    reader_rules.readers,
)

#: Asked of source connectors in the other modes.
BELOW_ENABLED: tuple[Rule, ...] = (answer_rules.required_below_enabled,)


def find(facts: Facts) -> list[ConnectorFinding]:
    """What all rules answer, by connector, the worst first. What is about all of them comes first."""
    exactly_once = facts.mode.runs_exactly_once_tasks
    found = list(setting_rules.internal_topics(facts))
    found += setting_rules.ignored_of_workers(facts) if exactly_once and facts.sources else ()
    for connector in sorted(facts.connectors, key=lambda one: one.name):
        found += worst_first(_of(connector, facts))
    return found


def _of(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    rules = OF_ANY
    if connector.type == "sink":
        yield SINK.holds(connector.name, "a sink connector: exactly-once source support changes nothing for it")
    else:
        rules += OF_SOURCES if facts.mode.runs_exactly_once_tasks else BELOW_ENABLED
    for rule in rules:
        yield from rule(connector, facts)
