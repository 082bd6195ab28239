"""The answer of one condition of the gate, or of one check before a roll."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import ParamSpec

from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.stored import unstored

P = ParamSpec("P")


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


def holds(found: str) -> Check:
    """The check of a function that is :func:`named` passes; likewise :func:`fails` and :func:`unknown`."""
    return passed("", found)


def fails(found: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return failed("", found, remedy, decisive=decisive)


def unknown(found: str, remedy: str = "", *, decisive: bool = False) -> Check:
    return inconclusive("", found, remedy, decisive=decisive)


def named(subject: str) -> Callable[[Callable[P, Check]], Callable[P, Check]]:
    """Gives the checks that a function answers with this subject."""

    def decorate(check: Callable[P, Check]) -> Callable[P, Check]:
        @wraps(check)
        def answer(*args: P.args, **kwargs: P.kwargs) -> Check:
            return replace(check(*args, **kwargs), subject=subject)

        return answer

    return decorate
