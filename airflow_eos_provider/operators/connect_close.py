"""Operators that close an unfinished roll or change."""

from __future__ import annotations

from airflow_eos_provider.changes.closing.change import CLOSE
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class ConnectClosePlanOperator(ChangePlanOperator):
    """Plan to close an unfinished roll or change, or to stop a running roll for good. Nothing is changed."""

    change = CLOSE


class ConnectCloseOperator(ChangeOperator):
    """Close it as approved. A roll that is carried out stops before its next action, which is waited for."""

    change = CLOSE
