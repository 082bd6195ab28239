"""All ready DAGs of the Kafka Connect cluster of ``kafka_connect_default``.

Copy this file once per cluster, with another ``CONN_ID`` and ``PREFIX``. Delete the DAGs that you do not need.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import audit_dag, change_dags, downgrade_dag, upgrade_dag

CONN_ID = "kafka_connect_default"
PREFIX = "connect"

# Exactly-once on and off, one worker at a time. With require_other_approver=True nobody approves a run of their own;
# notifiers=[SlackNotifier(text="{{ eos_message }}")] tells of a roll that stops.
upgrade = upgrade_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_exactly_once_upgrade")
downgrade = downgrade_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_exactly_once_downgrade")

# Checks the cluster every 15 minutes. To send what it finds: notifiers=[SlackNotifier(text="{{ drift_message }}")].
audit = audit_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_audit")

# A DAG for each change of docs/reference/changes.md: fencing, offsets, topics, ACLs, transactions, unfinished changes.
# acl_grant={"admin_conn_id": "kafka_admin"}, and the same for acl_revoke: then only the task that writes ACLs logs in
# with the right to alter them. without=("uninstall",) leaves DAGs out. Keep close out of the pool of the rolls: a roll
# that hangs may occupy the only slot.
globals().update(change_dags(conn_id=CONN_ID, prefix=PREFIX))
