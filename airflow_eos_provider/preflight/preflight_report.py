"""All rules of the preflight, and their result for a group, as a command, a task and a plan show it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import LINE_CHARACTERS, counted, one_line
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.preflight import answer_rules, reader_rules, setting_rules, transaction_rules
from airflow_eos_provider.preflight.findings import SINK, ConnectorFinding, worst_first
from airflow_eos_provider.preflight.group_facts import ConnectorFacts, Facts

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


def _find(facts: Facts) -> list[ConnectorFinding]:
    """What all rules answer, by connector, the worst first. What is about all of them comes first."""
    exactly_once = facts.mode.runs_exactly_once_tasks
    found = list(setting_rules.internal_topics(facts))
    found += setting_rules.ignored_of_workers(facts) if exactly_once and facts.sources else ()
    for connector in sorted(facts.connectors, key=lambda one: one.name):
        found += worst_first(replace(one, subject=connector.name) for one in _findings_of(connector, facts))
    return found


def _findings_of(connector: ConnectorFacts, facts: Facts) -> Iterator[ConnectorFinding]:
    rules = OF_ANY
    if connector.type == "sink":
        yield SINK.holds("a sink connector: exactly-once source support changes nothing for it")
    else:
        rules += OF_SOURCES if facts.mode.runs_exactly_once_tasks else BELOW_ENABLED
    for rule in rules:
        yield from rule(connector, facts)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings about a group's connectors.

    :param findings: those that hold too, by connector, the worst first.
    :param running: the source connectors that have a task which has not failed.
    :param accepted: keys of findings that do not count, as ``orders/support``.
    """

    group_id: str
    mode: Mode
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    findings: tuple[ConnectorFinding, ...]
    running: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Facts, accepted: Collection[str] = ()) -> Report:
        return cls(
            group_id=facts.group_id,
            mode=facts.mode,
            sources=tuple(sorted(one.name for one in facts.sources)),
            sinks=tuple(sorted(one.name for one in facts.connectors if one.type == "sink")),
            findings=tuple(_find(facts)),
            running=frozenset(one.name for one in facts.sources if one.running),
            accepted=tuple(accepted),
        )

    @property
    def verdict(self) -> Verdict:
        """Only findings that block, or may block, count, unless they are accepted."""
        return overall(one for one in self.findings if (one.blocks or one.may_block) and one.key not in self.accepted)

    @property
    def open(self) -> tuple[ConnectorFinding, ...]:
        """The findings that do not hold, the worst first."""
        return tuple(worst_first(finding for finding in self.findings if not finding.passed))

    @property
    def stopping(self) -> tuple[ConnectorFinding, ...]:
        """Those by which tasks that run now would fail in the mode."""
        return tuple(one for one in self.blocking if one.stops_tasks and one.subject in self.running)

    @property
    def blocking(self) -> tuple[ConnectorFinding, ...]:
        return tuple(finding for finding in self.open if finding.blocks and finding.key not in self.accepted)

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.accepted) - {finding.key for finding in self.open}))

    def of_connector(self, name: str) -> tuple[ConnectorFinding, ...]:
        """The findings about one connector; an empty name stands for what is about all."""
        return tuple(finding for finding in self.findings if finding.subject == name)

    def counts(self) -> dict[str, int]:
        """How many findings do not hold, by weight; those that are accepted by themselves."""
        found = dict.fromkeys(("blocks", "warns", "informs", "not known", "accepted"), 0)
        for finding in self.open:
            found["accepted" if finding.key in self.accepted else finding.weight] += 1
        return found

    def summary(self) -> str:
        said = [f"{number} {weight}" for weight, number in self.counts().items() if number]
        looked = counted(len(self.sources), "source connector")
        return f"{looked} in the mode {self.mode}: {', '.join(said) or 'nothing found'}."

    def lines(self, limit: int) -> list[str]:
        shown = [one_line(f"{one.subject or 'all'}: {one.weight}: {one}", LINE_CHARACTERS) for one in self.open[:limit]]
        left = len(self.open) - limit
        return [*shown, f"{counted(left, 'finding')} more"] if left > 0 else shown

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names.

        :param limit: so many findings at most, the worst, and none that holds; ``left_out`` says how many more there
            are.
        """
        shown: Iterable[ConnectorFinding] = self.findings if limit is None else self.open[:limit]
        if limit is not None:
            shown = (replace(one, found=one_line(one.found), remedy=one_line(one.remedy)) for one in shown)
        documents = [finding.to_dict() for finding in shown]
        return {
            "group": self.group_id,
            "mode": str(self.mode),
            "verdict": str(self.verdict),
            "counts": self.counts(),
            "sources": list(self.sources[:limit]),
            "sinks": list(self.sinks[:limit]),
            "accepted": list(self.accepted),
            "findings": documents,
            "left_out": 0 if limit is None else len(self.open) - len(documents),
        }
