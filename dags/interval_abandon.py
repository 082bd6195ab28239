"""Interval runs of the group ``eos-intervals`` given up, of which nothing is committed."""

from __future__ import annotations

from airflow_eos_provider.dag_factories import interval_abandon_dag

dag = interval_abandon_dag(group="eos-intervals", conn_id="kafka_default", dag_id="interval_abandon")
