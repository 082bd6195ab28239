"""The DAG of fencing rounds: plan, approval, rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.dag_factories.steps import (
    approval_arguments,
    chain_change,
    run_params,
    triggered_dag,
)
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.connect_fence import ConnectFenceOperator, ConnectFencePlanOperator

SUBJECT = "Approve fencing rounds"

DOC = """
### Fencing rounds in the Kafka Connect cluster of connection `{conn_id}`

Shows which rounds are due or have failed and which transactions are held open, asks a person under **Required
actions**, then fences the transactional ids, asks Connect to restart the tasks, and waits for its task count records.

* *Clear* a failed `fence`: a fencing that was cut off goes on where it stopped.
* Nothing pending and nothing held: the run skips the rest.
"""


def fence_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_fence",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    config_topic: str = "",
    tags: Collection[str] = ("kafka-connect", "fencing"),
) -> DAG:
    """Fencing rounds in one cluster, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param pool: pool of all tasks; the lease in Kafka keeps two changes of a group apart, whoever starts them.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param config_topic: the workers' ``config.storage.topic``; needed where their properties files cannot be read.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    cluster = {"conn_id": conn_id, "config_topic": config_topic}
    with triggered_dag(
        dag_id,
        pool=pool,
        params={
            "connectors": Param(
                None,
                title="Connectors",
                type=["null", "string"],
                description="Names of source connectors, separated by commas, such as orders, invoices; empty for all. "
                "Of those that are named, transactions that running tasks hold open are ended, too: these tasks fail "
                "and are restarted.",
            ),
            "pending": Param(
                False,
                title="Pending rounds only",
                type="boolean",
                description="On: only connectors whose fencing round is due or has failed. Transactions that others "
                "hold open are left alone.",
            ),
            **run_params("fencing", "connectors are fenced"),
        },
        description=f"Fencing rounds in the Kafka Connect cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        chain_change(
            ConnectFencePlanOperator,
            ConnectFenceOperator,
            task_id="fence",
            common=cluster,
            plan={"connectors": "{{ params.connectors or '' }}", "pending": "{{ params.pending }}"},
            takes_over=True,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag
