"""Operators that give up an interval run of which nothing is committed."""

from __future__ import annotations

from airflow_eos_provider.changes.intervals.change import ABANDON
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class IntervalAbandonPlanOperator(ChangePlanOperator):
    """Plan to give an interval run up. Nothing is changed."""

    change = ABANDON


class IntervalAbandonOperator(ChangeOperator):
    """Give the run up as approved. It is refused if a slice was committed since."""

    change = ABANDON
