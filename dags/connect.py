"""All ready DAGs of the Kafka Connect cluster of ``kafka_connect_default``.

Copy this file once per cluster, with another ``CONN_ID`` and ``PREFIX``. Delete the DAGs that you do not need.
"""

from __future__ import annotations

from airflow_eos_provider.dag_factories import (
    acl_grant_dag,
    acl_revoke_dag,
    audit_dag,
    close_dag,
    downgrade_dag,
    fence_dag,
    offsets_alter_dag,
    offsets_drop_own_dag,
    offsets_migrate_dag,
    offsets_prune_dag,
    offsets_reset_dag,
    offsets_restore_dag,
    topics_dag,
    transaction_abort_dag,
    uninstall_dag,
    upgrade_dag,
)

CONN_ID = "kafka_connect_default"
PREFIX = "connect"

# Exactly-once on and off, one worker at a time. With require_other_approver=True nobody approves a run of their own;
# notifiers=[SlackNotifier(text="{{ eos_message }}")] tells of a roll that stops.
upgrade = upgrade_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_exactly_once_upgrade")
downgrade = downgrade_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_exactly_once_downgrade")

# Checks the cluster every 15 minutes. To send what it finds: notifiers=[SlackNotifier(text="{{ drift_message }}")].
audit = audit_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_audit")

# Fence connectors, and end a hanging transaction.
fence = fence_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_fence")
transaction_abort = transaction_abort_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_transaction_abort")

# Source offsets and internal topics.
offsets_alter = offsets_alter_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_alter")
offsets_reset = offsets_reset_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_reset")
offsets_restore = offsets_restore_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_restore")
offsets_migrate = offsets_migrate_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_migrate")
offsets_prune = offsets_prune_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_prune")
offsets_drop_own = offsets_drop_own_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_offsets_drop_own")
topics = topics_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_topics")

# ACLs. Give both an admin_conn_id, so that only the task that writes ACLs logs in with the right to alter them.
acl_grant = acl_grant_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_acl_grant")
acl_revoke = acl_revoke_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_acl_revoke")

# Close an unfinished roll or change, and remove what this package has left of the group. Keep the first one out of the
# pool of the rolls: a roll that hangs may occupy the only slot.
close = close_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_close")
uninstall = uninstall_dag(conn_id=CONN_ID, dag_id=f"{PREFIX}_uninstall")
