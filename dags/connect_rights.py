"""Rights (ACLs) in the Kafka cluster of ``kafka_connect_default``: granted and revoked.

Copy this file once per cluster, with another ``conn_id`` and ``dag_id``. Give both an ``admin_conn_id`` whose login
alone may alter ACLs.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import acl_grant_dag, acl_revoke_dag

grant = acl_grant_dag(conn_id="kafka_connect_default", dag_id="connect_acl_grant")
revoke = acl_revoke_dag(conn_id="kafka_connect_default", dag_id="connect_acl_revoke")
