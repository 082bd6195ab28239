"""Changes of source offsets in the Kafka Connect cluster of ``kafka_connect_default``: one DAG for each kind.

Copy this file once per cluster, with another ``conn_id`` and other names of DAGs.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import (
    offsets_alter_dag,
    offsets_migrate_dag,
    offsets_prune_dag,
    offsets_reset_dag,
    offsets_restore_dag,
)

CONN_ID = "kafka_connect_default"

alter = offsets_alter_dag(conn_id=CONN_ID, dag_id="connect_offsets_alter")
reset = offsets_reset_dag(conn_id=CONN_ID, dag_id="connect_offsets_reset")
restore = offsets_restore_dag(conn_id=CONN_ID, dag_id="connect_offsets_restore")
migrate = offsets_migrate_dag(conn_id=CONN_ID, dag_id="connect_offsets_migrate")
prune = offsets_prune_dag(conn_id=CONN_ID, dag_id="connect_offsets_prune")
