"""Operators that end a hanging transaction in its partition."""

from __future__ import annotations

from airflow_eos_provider.changes.transactions.change import ABORT
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class TransactionAbortPlanOperator(ChangePlanOperator):
    """Plan the end of the transaction that hangs in one partition. Nothing is changed."""

    change = ABORT


class TransactionAbortOperator(ChangeOperator):
    """End the transaction as approved. Its records in that partition are given up for good."""

    change = ABORT
