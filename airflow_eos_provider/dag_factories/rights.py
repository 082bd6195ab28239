"""The DAGs of rights (ACLs)."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.connect_rights import (
    ConnectGrantOperator,
    ConnectGrantPlanOperator,
    ConnectRevokeOperator,
    ConnectRevokePlanOperator,
)

#: A connection whose login has *Alter* on the cluster; only the task that writes uses it.
_WRITER = ("admin_conn_id",)
_TAGS = ("kafka-connect", "rights")

grant_dag = ChangeDag(
    ConnectGrantPlanOperator, ConnectGrantOperator, dag_id="connect_grant", tags=_TAGS, apply_arguments=_WRITER
)
revoke_dag = ChangeDag(
    ConnectRevokePlanOperator, ConnectRevokeOperator, dag_id="connect_revoke", tags=_TAGS, apply_arguments=_WRITER
)
