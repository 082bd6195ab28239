"""Operators for fencing rounds."""

from __future__ import annotations

from airflow_eos_provider.changes.fencing.change import FENCING
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class ConnectFencePlanOperator(ChangePlanOperator):
    """Plan fencing rounds. Nothing is changed."""

    change = FENCING


class ConnectFenceOperator(ChangeOperator):
    """Carry approved fencing rounds out. If its process is killed, its next try resumes where the journal says."""

    change = FENCING
