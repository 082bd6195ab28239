"""The answer of one condition of the gate, or of one check before a roll."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.stored import unstored


@dataclass(frozen=True, slots=True)
class Check(Finding):
    """A finding whose subject is what was asked.

    :param decisive: waiting cannot change the answer.
    """

    decisive: bool = unstored(False)


def passed(subject: str, found: str) -> Check:
    return Check(subject, Verdict.PASS, found)


def failed(subject: str, found: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return Check(subject, Verdict.FAIL, found, remedy=remedy, decisive=decisive)


def inconclusive(subject: str, found: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return Check(subject, Verdict.INCONCLUSIVE, found, remedy=remedy, decisive=decisive)
