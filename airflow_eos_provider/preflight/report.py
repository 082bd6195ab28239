"""The result of a preflight of a group, as a command, a task and a plan show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import LINE_CHARACTERS, counted, one_line
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.preflight.facts import Facts
from airflow_eos_provider.preflight.findings import ConnectorFinding, worst_first
from airflow_eos_provider.preflight.rules import find


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
            findings=tuple(find(facts)),
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
