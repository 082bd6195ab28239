"""The DAG that changes a connector's source offsets: plan, approval, change."""

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
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.offsets.verbs.request import Verb
from airflow_eos_provider.operators.connect_offsets import ConnectOffsetsOperator, ConnectOffsetsPlanOperator

SUBJECT = "Approve a change of source offsets"

DOC = """
### Source offsets of the Kafka Connect cluster of connection `{conn_id}`

Shows the plan, asks a person under **Required actions**, then stops the connector, fences its transactional ids,
writes the offsets in one transaction, reads them back and restores the connector's state. Exactly the approved plan is
applied: if the connector or its offsets have changed since, nothing is written.

* *Clear* a failed `change` to resume it; it writes nothing twice.
* If you reject a plan, all tasks after it are skipped. A plan that is not answered in time fails the run. Nothing is
  changed.
"""

_ACTIONS = {
    Verb.ALTER: "sets the offsets that are given",
    Verb.RESET: "removes offsets, so that the connector starts from the beginning",
    Verb.RESTORE: "sets the offsets to those in a backup, and removes newer ones",
    Verb.MIGRATE: "moves the offsets into another topic",
    Verb.COPY: "takes the offsets of another connector",
    Verb.PRUNE: "removes what a deleted connector has left",
}


def offsets_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_offsets",
    action: str | None = None,
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    config_topic: str = "",
    offsets_topic: str = "",
    tags: Collection[str] = ("kafka-connect", "offsets"),
) -> DAG:
    """Changes of source offsets in one cluster, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param action: ``alter``, ``reset``, ``restore``, ``migrate``, ``copy`` or ``prune``: the only action of this DAG's
        runs; without it the form asks.
    :param pool: pool of all tasks; the lease in Kafka prevents two changes of a group at once.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: the user who started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param config_topic: the workers' ``config.storage.topic``; needed where their properties files cannot be read.
    :param offsets_topic: the workers' ``offset.storage.topic``; likewise.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    :raises ConfigurationError: there is no such action.
    """
    verbs = [str(verb) for verb in Verb]
    if action is not None and action not in verbs:
        raise ConfigurationError(f"There is no action {action}.", expected=f"one of {', '.join(verbs)}")
    topics = {"conn_id": conn_id, "config_topic": config_topic, "offsets_topic": offsets_topic}
    with triggered_dag(
        dag_id,
        pool=pool,
        params={**_form([action] if action else verbs), **run_params("source offsets", "the offsets are changed")},
        description=f"Change source offsets in the Kafka Connect cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        names = ("connector", "where", "offsets", "unlike", "absent", "file", "from_elsewhere", "source", "to", "topic")
        chain_change(
            ConnectOffsetsPlanOperator,
            ConnectOffsetsOperator,
            task_id="change",
            common=topics,
            plan={
                "verb": "{{ params.action }}",
                **{name: f"{{{{ params.{name} or '' }}}}" for name in names},
            },
            takes_over=True,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag


def _form(actions: list[str]) -> dict[str, Param]:
    """What a person fills in."""
    default = actions[0] if len(actions) == 1 else str(Verb.RESET)
    return {
        "action": Param(
            default,
            title="Action",
            type="string",
            enum=actions,
            description="; ".join(f"{action} {_ACTIONS[Verb(action)]}" for action in actions) + ".",
        ),
        "connector": Param(
            None,
            title="Connector",
            type="string",
            minLength=1,
            description="Name of the connector whose offsets are changed, such as orders.",
        ),
        "where": _text(
            "Reset, or alter to one offset: only these source partitions",
            'Source partitions with these members, as a JSON object: {"filename": "in.txt"}; empty for all.',
        ),
        "offsets": _text(
            "Alter: the new offsets",
            'JSON: [{"partition": {"filename": "in.txt"}, "offset": {"position": 0}}]; null as offset removes it. '
            '{"offset": {"position": 0}} is for each source partition that has one.',
        ),
        "unlike": Param(
            False,
            title="Alter: unlike the present offsets",
            type="boolean",
            description="On: also an offset whose members, types or source partition differ from the connector's "
            "present ones.",
        ),
        "absent": Param(
            False,
            title="Alter, restore, copy: the connector need not exist",
            type="boolean",
            description="On: it is created later, and starts from these offsets.",
        ),
        "file": _text(
            "Restore, or copy from another group: the backup",
            "Path of a backup, such as /backups/orders.jsonl, on each machine that may run the plan or the change. "
            "Empty for a copy within this group.",
        ),
        "from_elsewhere": Param(
            False,
            title="Restore: from elsewhere",
            type="boolean",
            description="On: also a backup of another group or Kafka cluster, or of a topic that was deleted and "
            "recreated since.",
        ),
        "source": _text(
            "Copy: from this connector",
            "Name of the connector that has the offsets, such as orders-old; it may be deleted by now.",
        ),
        "to": Param(
            "own",
            title="Migrate: to",
            type="string",
            enum=["own", "global"],
            description="own: a topic of the connector's own; global: the topic that the workers' connectors share.",
        ),
        "topic": _text("Migrate: the own topic", "Its name; empty for <group>-<connector>-offsets."),
    }


def _text(title: str, description: str) -> Param:
    return Param(None, title=title, type=["null", "string"], description=description)
