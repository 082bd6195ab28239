"""The DAG that takes a Kafka Connect cluster to exactly-once source support, the two rolls of KIP-618."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, TriggerRule
from airflow.sdk.configuration import conf

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.approval import PlanApprovalOperator
from airflow_eos_provider.operators.rolling_upgrade import (
    ConnectPlanOperator,
    ConnectPreflightOperator,
    ConnectRollingUpgradeOperator,
    ConnectVerifyOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: The order of KIP-618: no worker may be enabled while another is disabled, so every worker passes through preparing.
STEPS = (Mode.PREPARING, Mode.ENABLED)

REASON = "{{ params.reason }}"
TAKE_OVER = "{{ params.take_over }}"

DOC = """
### Exactly-once source support for the Kafka Connect cluster of connection `{conn_id}`

Takes every worker from `disabled` over `preparing` to `enabled`, one worker at a time, as KIP-618 demands.
Before each of the two rolls a person sees the plan (what changes, and how long each worker's tasks will stand still)
and approves it under **Required actions**. What is approved is what is applied: if the cluster has moved since, the
roll refuses and nothing is changed.

* Started again in the middle, it goes on from what it sees: a finished step is skipped, an enabled cluster is verified.
* A roll that fails at a worker puts that worker's file back and stops. Mend the cause, then clear the roll's task.
* *Mark failed* on a roll: no further worker is touched, the cluster stays as it is. Clear the task to go on.
* A rejected plan, or one that nobody answers in time, fails the run; nothing is changed.
"""


def upgrade_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_exactly_once_upgrade",
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    approval: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
    tags: Collection[str] = ("kafka-connect", "exactly-once"),
) -> DAG:
    """The upgrade of one cluster, for a DAG file of a few lines.

    Make one DAG per cluster. The connection is named here and not in the trigger form: whoever may start the DAG may
    then upgrade this cluster and no other.

    :param conn_id: a connection of type ``kafka_connect``.
    :param pool: pool of all tasks; it is there to spare the machine that the tasks run on, and is no lock: the lease in
        Kafka keeps two rolls apart, whoever starts them. A pool of one slot for all DAGs that touch the same cluster
        lets them queue instead of being refused; let it include deferred tasks, which otherwise give their slot back.
    :param response_timeout: how long each approval waits; without it, for ever. No answer is never a yes.
    :param approval: further arguments of the two approvals, such as ``assigned_users`` or ``notifiers``.
    :param settings: fields of ``RolloutSettings`` that differ from its defaults.
    :param deferrable: whether the rolls wait for their gates in the triggerer, without a worker's slot; default:
        ``[operators] default_deferrable``.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    with DAG(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        default_args={"pool": pool},
        params={
            "reason": Param(
                "exactly-once source support",
                type="string",
                minLength=1,
                description="Why the cluster is upgraded; it is shown to whoever approves, and kept in the journal.",
            ),
            "take_over": Param(
                False,
                type="boolean",
                description="Fence a controller that hangs, though its lease still runs. Kept in the journal.",
            ),
        },
        description=f"Roll the Kafka Connect cluster of {conn_id} to exactly-once source support",
        doc_md=DOC.format(conn_id=conn_id),
        tags=list(tags),
    ) as dag:
        last: BaseOperator = ConnectPreflightOperator(task_id="preflight", conn_id=conn_id, settings=settings)
        approving = {"response_timeout": response_timeout, **(approval or {})}
        for mode in STEPS:
            last = _step(last, mode, conn_id, settings, approving, deferrable)
    return dag


def _step(
    before: BaseOperator,
    mode: Mode,
    conn_id: str,
    settings: Mapping[str, Any] | None,
    approval: Mapping[str, Any],
    deferrable: bool,
) -> BaseOperator:
    """Plan, approve, roll and verify one step; the plan's task skips the step if it is done already."""
    cluster: dict[str, Any] = {"conn_id": conn_id, "settings": settings}
    planned = ConnectPlanOperator(
        task_id=f"plan_{mode}",
        target=str(mode),
        trigger_rule=TriggerRule.NONE_FAILED,  # goes on behind a step that was skipped, not behind one that failed
        **cluster,
    )
    approved = PlanApprovalOperator(task_id=f"approve_{mode}", plan=planned.output, reason=REASON, **approval)
    rolled = ConnectRollingUpgradeOperator(
        task_id=f"roll_{mode}",
        plan=planned.output,
        approval=approved.output,
        reason=REASON,
        take_over=TAKE_OVER,
        deferrable=deferrable,
        **cluster,
    )
    verified = ConnectVerifyOperator(
        task_id=f"verify_{mode}",
        target=str(mode),
        # The last step is proven even if there was nothing to do. A skipped first step is not: some may be beyond it.
        trigger_rule=TriggerRule.NONE_FAILED if mode is STEPS[-1] else TriggerRule.ALL_SUCCESS,
        **cluster,
    )
    before >> planned >> approved >> rolled >> verified
    return verified
