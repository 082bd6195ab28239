"""A DAG that waits, deferred, until the cluster of ``kafka_connect_default`` drifts."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_eos_provider.sensors import ConnectDriftSensor

with DAG("drift_sensor", schedule=None, catchup=False):
    ConnectDriftSensor(task_id="wait_for_drift", connect_mode="enabled", deferrable=True, timeout=600)
