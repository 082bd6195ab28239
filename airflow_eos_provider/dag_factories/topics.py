"""The DAG of a group's internal topics: plan, approval, creation."""

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
from airflow_eos_provider.operators.connect_topics import ConnectTopicsOperator, ConnectTopicsPlanOperator

SUBJECT = "Approve changes of internal topics"

DOC = """
### Internal topics of the Kafka Connect cluster of connection `{conn_id}`

Looks at the group's three topics and every connector's own offsets topic, shows which are missing or have a wrong
setting, asks a person under **Required actions**, then creates and mends them. Nothing is deleted, and no data moves.

* What cannot be mended here is a warning in the log of `plan`, with what helps.
* All as it should be: the run skips the rest.
* *Clear* a failed `create`: one that was cut off does what is left of the approved plan.
"""


def topics_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_topics",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    config_topic: str = "",
    offsets_topic: str = "",
    status_topic: str = "",
    tags: Collection[str] = ("kafka-connect", "topics"),
) -> DAG:
    """Internal topics of one cluster checked, created and mended, for a DAG file of a few lines. One DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param pool: pool of all tasks; the lease in Kafka keeps two changes of a group apart, whoever starts them.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param config_topic: the workers' ``config.storage.topic``; needed where their properties files cannot be read.
    :param offsets_topic: the workers' ``offset.storage.topic``; likewise.
    :param status_topic: the workers' ``status.storage.topic``; likewise.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    with triggered_dag(
        dag_id,
        pool=pool,
        params={
            "own_topics": Param(
                None,
                title="Further own topics",
                type=["null", "string"],
                description="Offsets topics that connectors are to have as their own, separated by commas, such as "
                "orders-offsets; empty for none. Those that connectors have already are looked at in any case.",
            ),
            "partitions": Param(
                None,
                title="Partitions",
                type=["null", "integer"],
                minimum=1,
                description="How many partitions offsets topics get; empty: as the workers' files say, else 25.",
            ),
            "replication_factor": Param(
                None,
                title="Replication factor",
                type=["null", "integer"],
                minimum=1,
                description="On how many brokers each topic is kept; empty: as the workers' files say, else 3.",
            ),
            **run_params("change", "topics are created or mended"),
        },
        description=f"Internal topics of the Kafka Connect cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        asked = {
            "conn_id": conn_id,
            "config_topic": config_topic,
            "offsets_topic": offsets_topic,
            "status_topic": status_topic,
            **{name: f"{{{{ params.{name} or '' }}}}" for name in ("own_topics", "partitions", "replication_factor")},
        }
        chain_change(
            ConnectTopicsPlanOperator,
            ConnectTopicsOperator,
            task_id="create",
            common=asked,
            takes_over=True,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag
