"""Operators for a group's internal topics."""

from __future__ import annotations

from airflow_eos_provider.changes.topics.change import CREATE_TOPICS
from airflow_eos_provider.operators.change import ChangeOperator, ChangePlanOperator


class ConnectTopicsPlanOperator(ChangePlanOperator):
    """Plan to create and fix a group's internal topics and connectors' own. Nothing is changed."""

    change = CREATE_TOPICS


class ConnectTopicsOperator(ChangeOperator):
    """Create and fix internal topics as approved. If its process is killed, its next try does the rest."""

    change = CREATE_TOPICS
