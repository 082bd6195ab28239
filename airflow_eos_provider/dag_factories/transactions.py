"""The DAG that ends a hanging transaction: plan, approval, end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.dag_factories.steps import approval_arguments, chain_change, reason_param, triggered_dag
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.transaction_abort import TransactionAbortOperator, TransactionAbortPlanOperator

SUBJECT = "Approve the end of a hanging transaction"

DOC = """
### A hanging transaction ended, in the Kafka cluster of connection `{conn_id}`

A transaction hangs when a partition holds it open and no coordinator will end it: readers of committed records wait
before it. The task `look_at_transactions` of the audit's DAG names topic, partition and offset of each; the form asks
for them.

Shows what hangs there and what waits behind it, asks a person under **Required actions**, then writes the marker. **Its
records in that partition are given up for good.** What a coordinator has open, and what may be alive, is refused.
"""


def transaction_abort_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_transaction_abort",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "transactions"),
) -> DAG:
    """The end of a hanging transaction in one Kafka cluster, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param pool: pool of all tasks.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    asked = {
        "conn_id": conn_id,
        "topic": "{{ params.topic }}",
        "partition": "{{ params.partition }}",
        "start_offset": "{{ '' if params.start_offset is none else params.start_offset }}",
        "fence": "{{ params.fence }}",
    }
    with triggered_dag(
        dag_id,
        pool=pool,
        params={
            "topic": Param(
                type="string",
                title="Topic",
                pattern=r"^[a-zA-Z0-9._-]{1,249}$",
                description="The topic that holds the transaction open, such as orders.",
            ),
            "partition": Param(
                type="integer",
                title="Partition",
                minimum=0,
                description="The partition of it that holds the transaction open; they count from 0.",
            ),
            "start_offset": Param(
                None,
                type=["null", "integer"],
                title="First offset",
                minimum=0,
                description="The offset of the transaction's first record, such as 4711; needed where several hang in "
                "that partition, else empty.",
            ),
            "fence": Param(
                False,
                type="boolean",
                title="Shut its producer out",
                description="Off: what a living producer may own is refused. On: its producer is fenced first and can "
                "write nothing more; what it does then fails.",
            ),
            **reason_param("a hanging transaction", "the transaction is ended"),
        },
        description=f"End a hanging transaction in the Kafka cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        chain_change(
            TransactionAbortPlanOperator,
            TransactionAbortOperator,
            task_id="abort",
            common=asked,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag
