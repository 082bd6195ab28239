"""The DAGs that change source offsets."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators import connect_offsets as operators

_TAGS = ("kafka-connect", "offsets")

offsets_alter_dag = ChangeDag(
    operators.ConnectOffsetsAlterPlanOperator,
    operators.ConnectOffsetsAlterOperator,
    dag_id="connect_offsets_alter",
    tags=_TAGS,
)
offsets_reset_dag = ChangeDag(
    operators.ConnectOffsetsResetPlanOperator,
    operators.ConnectOffsetsResetOperator,
    dag_id="connect_offsets_reset",
    tags=_TAGS,
)
offsets_restore_dag = ChangeDag(
    operators.ConnectOffsetsRestorePlanOperator,
    operators.ConnectOffsetsRestoreOperator,
    dag_id="connect_offsets_restore",
    tags=_TAGS,
)
offsets_migrate_dag = ChangeDag(
    operators.ConnectOffsetsMigratePlanOperator,
    operators.ConnectOffsetsMigrateOperator,
    dag_id="connect_offsets_migrate",
    tags=_TAGS,
)
offsets_prune_dag = ChangeDag(
    operators.ConnectOffsetsPrunePlanOperator,
    operators.ConnectOffsetsPruneOperator,
    dag_id="connect_offsets_prune",
    tags=_TAGS,
)
