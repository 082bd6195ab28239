"""The upgrade DAG with rolls that are deferred while they wait, with limits short enough for a test."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.openlineage.utils.selective_enable import enable_lineage

from airflow_eos_provider.dag_factories import upgrade_dag

dag = upgrade_dag(
    dag_id="deferred_upgrade",
    deferrable=True,
    settings={"poll_interval_seconds": 0.5, "hold_seconds": 2.0},
)
enable_lineage(dag)
for task in dag.tasks:
    task.retry_delay = timedelta(seconds=2)
