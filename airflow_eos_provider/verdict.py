"""The three answers of a check."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Three answers, as in Argo Rollouts' analysis: go on, stop and put back, or pause."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
