"""The DAG that closes an unfinished roll or change: plan, approval, end."""

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
### Close an unfinished roll or change of the Kafka Connect cluster of connection `{conn_id}`

An unfinished roll, or change of offsets or topics, blocks every other change of the group. **Finish it if you can**:
clear the failed task of the run that began it. Close it only if you no longer want it.

Shows how far it has come, and whether half-done workers answer; asks a person under **Required actions**; then closes
it in the journal. It can never be resumed. Nothing else changes: a stopped connector stays stopped, and workers keep
their modes. Check both first, on the page *Exactly once*.

* Only to look: start a run and reject its plan.
* Nothing is open: the run skips the rest.
* A roll is still running: it is asked to stop for good before its next action, like `eos rollout abort`.
* A change is still running: the run fails and names it. Changes are short; start another run.
* **Take over** asks nobody: the current controller is fenced. Use it if that controller hangs.
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
    :param four_eyes: the user who started a run may not approve its plan; see ``docs/connect/security.md``.
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
                "open one. The page Exactly once shows the ids.",
            ),
            **run_params("not wanted any more", "it is closed and not finished"),
        },
        description=f"Close an unfinished roll or change of the Kafka Connect cluster of {conn_id}",
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
