"""The DAG that takes a Kafka Connect cluster to exactly-once source support, the two rolls of KIP-618."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier
from airflow.sdk.configuration import conf

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.dag_factories.dag_steps import approval_arguments, chain_rolls, run_params
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

#: The order of KIP-618: no worker may be enabled while another is disabled, so every worker passes through preparing.
STEPS = (Mode.PREPARING, Mode.ENABLED)

DOC = """
### Exactly-once source support for the Kafka Connect cluster of connection `{conn_id}`

Takes every worker from `disabled` through `preparing` to `enabled`, one worker at a time, as KIP-618 requires.
First, a preflight checks what exactly-once does to each connector; a finding that blocks ends the run.
Before each of the two rolls a person reviews the plan (the changes, and each worker's predicted task downtime)
and approves it under **Required actions**. Exactly the approved plan is applied: if the cluster has changed since, the
roll refuses and nothing is changed.

* If you start it again halfway, it skips the finished steps, and verifies a cluster that is enabled.
* A roll that fails at a worker restores that worker's file and stops. Remove the cause, then clear the roll's task.
* *Mark failed* on a roll: no further worker is touched, and the cluster keeps its state. Clear the task to resume.
* If you reject a plan, all tasks after it are skipped. A plan that is not answered in time fails the run. Nothing is
  changed.
"""


def upgrade_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_exactly_once_upgrade",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    require_other_approver: bool = False,
    approval: Mapping[str, Any] | None = None,
    notifiers: Sequence[BaseNotifier] = (),
    settings: Mapping[str, Any] | None = None,
    accept: Sequence[str] = (),
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
    default_args: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "exactly-once"),
) -> DAG:
    """The upgrade of one cluster, for a DAG file of a few lines.

    Make one DAG per cluster. The connection is set here and not in the trigger form, so a user who may start the DAG
    can upgrade this cluster only.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param pool: pool of all tasks. It limits the load, and is not a lock: the lease in Kafka prevents two rolls at a
        time. Give all DAGs of a cluster a pool of one slot to queue them; otherwise the second one is refused. Let the
        pool include deferred tasks, or a deferred task frees its slot.
    :param response_timeout: how long each approval waits; without it, for ever. No answer is never a yes.
    :param require_other_approver: the user who started a run may not approve its plans; see
        ``docs/connect/security.md``.
    :param approval: further arguments of the two approvals, such as ``assigned_users`` or ``notifiers``.
    :param notifiers: notifiers of other providers that send a message, with ``{{ eos_message }}`` in their text, when a
        roll fails or pauses.
    :param settings: fields of ``RolloutSettings`` that differ from its defaults.
    :param accept: findings of the preflight of the connectors that do not fail it, each as ``<connector>/<kind>``.
    :param deferrable: whether the rolls wait for their gates in the triggerer, without a worker's slot; default:
        ``[operators] default_deferrable``.
    :param default_args: of the tasks, as every DAG takes them. Approvals and rolls keep their own ``retries`` and
        ``retry_delay``; callbacks are called in addition to the notifiers.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    with make_dag(
        dag_id,
        schedule=None,
        pool=pool,
        default_args=default_args,
        params=run_params("exactly-once source support", "the cluster is upgraded"),
        description=f"Roll the Kafka Connect cluster of {conn_id} to exactly-once source support",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        chain_rolls(
            STEPS,
            conn_id=conn_id,
            settings=settings,
            approval=approval_arguments(
                approval, response_timeout=response_timeout, require_other_approver=require_other_approver
            ),
            notifiers=notifiers,
            deferrable=deferrable,
            accept=accept,
        )
    return dag
