"""The DAG that closes a roll or a change which was left open: plan, approval, end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.dag_factories.steps import (
    TAKE_OVER,
    approval_arguments,
    chain_change,
    run_params,
    triggered_dag,
)
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.connect_close import ConnectCloseOperator, ConnectClosePlanOperator

SUBJECT = "Approve that a roll or a change is closed"

DOC = """
### A roll or a change closed that was left open, in the Kafka Connect cluster of connection `{conn_id}`

A roll, or a change of offsets or topics, that was begun and not finished keeps the group from any other. **It is better
finished**: clear the failed task of the run that has begun it. Close it only if that is not wanted any more.

Shows how far it has come, and whether the workers that are half done answer; asks a person under **Required actions**;
then closes it in the journal. It is never taken up again. Nothing else is touched: a connector stays stopped if it was
stopped, workers stay in the modes that they have. Look at both before, on the page *Exactly once*.

* Only to look: start a run and reject its plan.
* Nothing is open: the run skips the rest.
* A roll is still carried out: it is asked to stop before its next action, for good, as `eos rollout abort` does.
* A change is still carried out: the run fails and names it. Changes are short; start another run.
* **Take over** asks nobody: who carries it out is fenced. It is for a controller that hangs.
"""


def close_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_close",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "journal"),
) -> DAG:
    """What was left open in one cluster closed, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param pool: pool of all tasks; not the one of the rolls, in which what hangs may keep the only slot.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    with triggered_dag(
        dag_id,
        pool=pool,
        params={
            "which": Param(
                None,
                title="Which",
                type=["null", "string"],
                description="The id of the roll or change, or its beginning, such as 20261121T2336; empty: the only "
                "one that is open. The page Exactly once has the ids.",
            ),
            **run_params("not wanted any more", "it is closed and not finished"),
        },
        description=f"Close what was left open in the Kafka Connect cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        chain_change(
            ConnectClosePlanOperator,
            ConnectCloseOperator,
            task_id="close",
            common={"conn_id": conn_id, "which": "{{ params.which or '' }}"},
            plan={"take_over": TAKE_OVER},
            takes_over=True,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag
