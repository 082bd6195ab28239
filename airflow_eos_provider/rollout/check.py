"""One answer of a check: pass, fail or inconclusive, always with the evidence and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from airflow_eos_provider.verdict import Verdict

__all__ = ["Check", "Verdict", "failed", "inconclusive", "overall", "passed"]


@dataclass(frozen=True, slots=True)
class Check:
    """What one condition of the gate, or one preflight check, answered.

    :param name: what was asked, in two or three words.
    :param verdict: its answer.
    :param evidence: what was seen.
    :param remedy: what to do about it, where it did not pass.
    :param decisive: waiting cannot change the answer.
    """

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    decisive: bool = False

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        text = f"{self.name}: {self.verdict} - {self.evidence}"
        return f"{text} (what to do: {self.remedy})" if self.remedy and not self.passed else text


def passed(name: str, evidence: str) -> Check:
    return Check(name, Verdict.PASS, evidence)


def failed(name: str, evidence: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return Check(name, Verdict.FAIL, evidence, remedy, decisive)


def inconclusive(name: str, evidence: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return Check(name, Verdict.INCONCLUSIVE, evidence, remedy, decisive)


def overall(checks: Iterable[Check]) -> Verdict:
    """The answer of several checks together: a failure outweighs an unknown, an unknown outweighs a pass."""
    verdicts = {check.verdict for check in checks}
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS
