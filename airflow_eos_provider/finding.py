"""What a check finds: one finding with one of three answers, and all findings of one audit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.stored import to_json, unstored


class Verdict(StrEnum):
    """Three answers, as in Argo Rollouts' analysis: continue, stop and roll back, or pause."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        """What a command that checks ends with. Scripts rely on these."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 5}[self]


def overall(findings: Iterable[Finding]) -> Verdict:
    """The answer of several findings: a failure outweighs an unknown, an unknown outweighs a pass."""
    verdicts = {finding.verdict for finding in findings}
    return next((each for each in (Verdict.FAIL, Verdict.INCONCLUSIVE) if each in verdicts), Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    :param subject: what it is about: a worker, a connector, a topic, or the question of a check in a word or two.
    :param found: what was found, in one sentence.
    :param expected: what should be there, if that is not obvious.
    :param remedy: what to do about it.
    :param kind: of what kind it is, where one command finds several kinds. Scripts rely on it.
    :param detail: distinguishes findings of the same kind about the same subject.
    """

    subject: str
    verdict: Verdict
    found: str
    expected: str = ""
    remedy: str = ""
    kind: str = ""
    detail: str = unstored("")

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def key(self) -> str:
        """The same for the same finding of the next check."""
        return " ".join(filter(None, (self.kind, self.subject, self.detail)))

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        document: dict[str, Any] = to_json(self)
        return document

    def lines(self) -> list[str]:
        """For a person: what was found, what was expected, and what to do."""
        more = (("Expected", self.expected), ("What to do", self.remedy))
        return [self.found, *(f"{label}: {text}" for label, text in more if text)]

    def __str__(self) -> str:
        text = f"{self.subject}: {self.verdict} - {self.found}"
        return f"{text} (what to do: {self.remedy})" if self.remedy else text


@dataclass(frozen=True, slots=True)
class Audit(ABC):
    """What one audit of a Connect group has found.

    :param at: when, seconds since the epoch.
    :param doubts: what the audit could not see. It counts as unknown, not as fine.
    """

    at: float
    group_id: str
    findings: tuple[Finding, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return overall(self.findings) if self.findings else Verdict.INCONCLUSIVE if self.doubts else Verdict.PASS

    @property
    def keys(self) -> tuple[str, ...]:
        """Tell one state from another; equal for two audits that have found the same."""
        return tuple(sorted(finding.key for finding in self.findings)) or (("doubt",) if self.doubts else ())

    @abstractmethod
    def headline(self) -> str:
        """What was found, in one sentence."""

    def describe(self) -> str:
        """The whole message: each finding with its remedy."""
        lines = [self.headline()]
        for number, finding in enumerate(self.findings, start=1):
            first, *more = finding.lines()
            lines += [f"{number}. {first}", *(f"   {line}" for line in more)]
        lines += [f"Not seen: {doubt}" for doubt in self.doubts]
        return "\n".join(one_line(line, LINE_CHARACTERS) for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "at": self.at,
            "group_id": self.group_id,
            "verdict": str(self.verdict),
            "findings": to_json(self.findings),
            "doubts": list(self.doubts),
            "keys": list(self.keys),
        }
