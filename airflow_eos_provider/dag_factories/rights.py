"""The DAGs of rights (ACLs)."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_rights import (
    ConnectAclGrantOperator,
    ConnectAclGrantPlanOperator,
    ConnectAclRevokeOperator,
    ConnectAclRevokePlanOperator,
)

#: A connection whose login has *Alter* on the cluster; only the task that writes uses it.
_WRITER = ("admin_conn_id",)
_TAGS = ("kafka-connect", "rights")

acl_grant_dag = ChangeDag(
    ConnectAclGrantPlanOperator,
    ConnectAclGrantOperator,
    dag_id="connect_acl_grant",
    tags=_TAGS,
    apply_arguments=_WRITER,
)
acl_revoke_dag = ChangeDag(
    ConnectAclRevokePlanOperator,
    ConnectAclRevokeOperator,
    dag_id="connect_acl_revoke",
    tags=_TAGS,
    apply_arguments=_WRITER,
)
