"""Operators that remove what this package has left of a group."""

from __future__ import annotations

from airflow_eos_provider.changes.uninstall.change import UNINSTALL
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class ConnectUninstallPlanOperator(ChangePlanOperator):
    """Plan to remove what this package has left of a group, as this machine sees it. Nothing is changed."""

    change = UNINSTALL


class ConnectUninstallOperator(ChangeOperator):
    """Remove it as approved. If its process is killed, start a new run for what is left."""

    change = UNINSTALL
