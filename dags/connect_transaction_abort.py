"""The end of a hanging transaction in the Kafka cluster of ``kafka_connect_default``.

Copy this file once per cluster, with another ``conn_id`` and ``dag_id``.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import transaction_abort_dag

dag = transaction_abort_dag(conn_id="kafka_connect_default", dag_id="connect_transaction_abort")
