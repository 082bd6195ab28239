"""Checks every 15 minutes whether the Kafka Connect cluster of ``kafka_connect_default`` has drifted.

Copy this file once per cluster, with another ``conn_id`` and ``dag_id``.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import audit_dag

dag = audit_dag(conn_id="kafka_connect_default", dag_id="connect_audit")
