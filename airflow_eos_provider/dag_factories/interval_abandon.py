"""The DAG that gives an interval run up: plan, approval, end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.dag_factories.steps import approval_arguments, chain_change, reason_param, triggered_dag
from airflow_eos_provider.hooks.pipeline import DEFAULT_GROUP_ID, DEFAULT_KAFKA_CONN_ID
from airflow_eos_provider.operators.interval_abandon import IntervalAbandonOperator, IntervalAbandonPlanOperator

SUBJECT = "Approve that an interval run is given up"

DOC = """
### An interval run given up, in the group `{group_id}`

For a run that was begun with a plan that is not wanted any more: other slices, other files. Only one of which
**nothing is committed** can be given up; what is committed can be completed alone.

Shows what is on record, asks a person under **Required actions**, fences a driver that still runs it, and removes the
plan. The next run of the interval makes a new one.
"""


def interval_abandon_dag(
    *,
    group_id: str = DEFAULT_GROUP_ID,
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    dag_id: str = "interval_abandon",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("exactly-once", "intervals"),
) -> DAG:
    """Interval runs of one group given up, for a DAG file of a few lines.

    :param group_id: the group of the pipelines.
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect``.
    :param dag_id: the DAG's id.
    :param pool: pool of all tasks.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    asked = {
        "group_id": group_id,
        "kafka_conn_id": kafka_conn_id,
        "pipeline": "{{ params.pipeline }}",
        "interval": "{{ params.interval }}",
        "revision": "{{ params.revision }}",
    }
    with triggered_dag(
        dag_id,
        pool=pool,
        params={
            "pipeline": Param(
                type="string", title="Pipeline", minLength=1, description="The pipeline's name, such as flights.daily."
            ),
            "interval": Param(
                type="string",
                title="Interval",
                pattern=r"^[^/\s]+/[^/\s]+$",
                description="The interval as start/end in ISO 8601 with offsets, such as "
                "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z.",
            ),
            "revision": Param(
                1,
                type="integer",
                title="Revision",
                minimum=1,
                description="Which revision of the interval: 1, unless it was written once more on purpose.",
            ),
            **reason_param("another plan is wanted", "the run is given up"),
        },
        description=f"Give up interval runs of the group {group_id}",
        doc=DOC.format(group_id=group_id),
        tags=tags,
    ) as dag:
        chain_change(
            IntervalAbandonPlanOperator,
            IntervalAbandonOperator,
            task_id="abandon",
            common=asked,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag
