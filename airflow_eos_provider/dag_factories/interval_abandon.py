"""The DAG that gives up an interval run."""

from __future__ import annotations

from airflow_eos_provider.dag_factories.change import ChangeDag
from airflow_eos_provider.operators.interval_abandon import IntervalAbandonOperator, IntervalAbandonPlanOperator

interval_abandon_dag = ChangeDag(
    IntervalAbandonPlanOperator,
    IntervalAbandonOperator,
    dag_id="interval_abandon",
    tags=("exactly-once", "intervals"),
)
