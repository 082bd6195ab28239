"""The DAG of rights (ACLs): plan, approval, grant or revocation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.dag_factories.steps import approval_arguments, chain_change, reason_param, triggered_dag
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.connect_rights import ACTIONS, ConnectRightsOperator, ConnectRightsPlanOperator

SUBJECT = "Approve a change of rights (ACLs)"

DOC = """
### Rights (ACLs) in the Kafka cluster of connection `{conn_id}`

Looks at the workers' files, the connectors and their tasks, finds who needs which rights for exactly-once, and shows
**every ACL** that would be created or deleted. A person answers under **Required actions**; then just these ACLs are
written.

* `grant` creates what is missing, before a roll to `preparing` or `enabled`. What is there already is left as it is.
* `revoke` deletes what a grant would create. What workers and connectors need that are there is kept.
* Only to look: start a run and reject its plan. Nothing is changed.
* All as it should be: the run skips the rest.
* *Clear* a failed `change`: it looks again, and does what was approved or nothing.

Reading ACLs wants *Describe* on the cluster; writing them *Alter*, which {writer} has to have.
"""


def rights_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    admin_conn_id: str = "",
    dag_id: str = "connect_rights",
    principals: Mapping[str, str] | None = None,
    pipelines: Sequence[str] = (),
    interval_principal: str = "User:spark",
    verbs: Sequence[str] = (),
    topics: Mapping[str, str] | None = None,
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    four_eyes: bool = False,
    approval: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "rights"),
) -> DAG:
    """Rights in one cluster granted and revoked, for a DAG file of a few lines. Make one DAG per cluster.

    Who gets rights follows from the cluster and from this function's arguments, not from the form: whoever may start
    the DAG cannot name a principal.

    :param conn_id: a connection of type ``kafka_connect``.
    :param admin_conn_id: a connection of type ``kafka`` or ``kafka_connect`` of the same brokers whose login has
        *Alter* on the cluster; only the task that writes uses it. Empty: the cluster's own connection, which then has
        that right in every other DAG, too.
    :param dag_id: the DAG's id; one for each cluster.
    :param principals: who the parts of the cluster are, where files and configurations do not say it: ``worker``,
        ``producer``, ``consumer`` and ``admin``, as in ``{"worker": "User:connect"}``.
    :param pipelines: also the rights of interval runs of these, each as ``GROUP/NAME:TOPIC,…``.
    :param interval_principal: of these interval runs.
    :param verbs: also what this package itself needs for these, as in ``fence`` or ``topics check``.
    :param topics: names of internal topics by the workers' properties, such as ``config.storage.topic``; needed where
        their files cannot be read.
    :param pool: pool of all tasks.
    :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
    :param four_eyes: whoever has started a run may not approve its plan; see ``docs/connect/security.md``.
    :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    fields = ("action", "mode", "prefixed", "for_tasks_max", "even_if_needed")
    asked = {
        "conn_id": conn_id,
        "principals": principals,
        "pipelines": pipelines,
        "interval_principal": interval_principal,
        "verbs": verbs,
        "topics": topics,
        "connectors": "{{ params.connectors or '' }}",
        **{name: f"{{{{ params.{name} }}}}" for name in fields},
    }
    with triggered_dag(
        dag_id,
        pool=pool,
        params={**_form(), **reason_param("rights for exactly-once", "rights are granted or revoked")},
        description=f"Grant and revoke rights in the Kafka cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id, writer=f"connection `{admin_conn_id or conn_id}`"),
        tags=tags,
    ) as dag:
        chain_change(
            ConnectRightsPlanOperator,
            ConnectRightsOperator,
            task_id="change",
            common=asked,
            change={"admin_conn_id": admin_conn_id},
            approval=approval_arguments(
                approval, response_timeout=response_timeout, four_eyes=four_eyes, subject=SUBJECT
            ),
        )
    return dag


def _form() -> dict[str, Param]:
    """What a person fills in."""
    return {
        "action": Param(
            ACTIONS[0],
            title="Action",
            type="string",
            enum=list(ACTIONS),
            description="grant creates the ACLs that are missing; revoke deletes those that a grant would create.",
        ),
        "connectors": Param(
            None,
            title="Connectors",
            type=["null", "string"],
            description="Only the rights of these connectors' clients, names separated by commas, such as orders, "
            "invoices; empty for the workers and all connectors. To revoke, also names of connectors that are gone.",
        ),
        "mode": Param(
            str(Mode.ENABLED),
            title="Mode",
            type="string",
            enum=[str(mode) for mode in Mode],
            description="exactly.once.source.support of the workers that the rights are for: the mode that they have, "
            "or are to have. To take back what a cluster needs no more that is disabled again: enabled.",
        ),
        "prefixed": Param(
            False,
            title="One rule for a connector's ids",
            type="boolean",
            description="Off: an ACL for the transactional id of each task. On: one for all that begin with the "
            "connector's name, whatever its number of tasks; the plan names what else that reaches.",
        ),
        "for_tasks_max": Param(
            False,
            title="For tasks.max",
            type="boolean",
            description="On: ids for as many tasks as the connector's tasks.max allows, and not only for those that it "
            "has now.",
        ),
        "even_if_needed": Param(
            False,
            title="Revoke: even if needed",
            type="boolean",
            description="On: also what workers and connectors need that are there; they fail without it. Refused for "
            "a grant.",
        ),
    }
