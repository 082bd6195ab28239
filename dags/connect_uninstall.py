"""What ``eos`` has left of the Kafka Connect cluster of ``kafka_connect_default``: removed.

Copy this file once per cluster, with another ``conn_id`` and ``dag_id``.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import uninstall_dag

dag = uninstall_dag(conn_id="kafka_connect_default", dag_id="connect_uninstall")
