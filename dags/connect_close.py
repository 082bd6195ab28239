"""A roll or a change that was left open in the Kafka Connect cluster of ``kafka_connect_default``: closed as it is.

Do not put it into the pool of the rolls: a roll that hangs may keep the only slot. Copy this file once
per cluster, with another ``conn_id`` and ``dag_id``.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import close_dag

dag = close_dag(conn_id="kafka_connect_default", dag_id="connect_close")
