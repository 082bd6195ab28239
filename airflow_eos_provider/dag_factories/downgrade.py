"""The DAG that takes a Kafka Connect cluster back from exactly-once source support (KIP-618's soft downgrade)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier
from airflow.sdk.configuration import conf

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.dag_factories.dag_steps import approval_arguments, chain_rolls, run_params
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

SUBJECT = "Approve the downgrade of a Kafka Connect cluster: exactly-once is given up"

DOC = """
### Downgrade of the Kafka Connect cluster of connection `{conn_id}`: {way}

Rolls one worker at a time, through the same gate as an upgrade. **Exactly-once is given up with the first worker
that leaves `enabled`**; from then on records may be duplicated. Nothing is lost: each worker's file gets
`isolation.level=read_committed` along with its mode, because a worker that is not enabled would
otherwise use the offsets of a transaction that was never committed. Before each roll a person reviews the plan and
approves it under **Required actions**; exactly the approved plan is applied.

If you start it again halfway, it skips the finished steps. If you reject a plan, all tasks after it are
skipped. A plan that is not answered in time fails the run. Either way nothing is changed.
"""


def downgrade_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_exactly_once_downgrade",
    steps: Sequence[str] = ("disabled",),
    pool: str = "default_pool",
    response_timeout: timedelta | None = None,
    require_other_approver: bool = False,
    approval: Mapping[str, Any] | None = None,
    notifiers: Sequence[BaseNotifier] = (),
    settings: Mapping[str, Any] | None = None,
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
    default_args: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "exactly-once"),
) -> DAG:
    """The downgrade of one cluster, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param steps: the modes to roll to, downwards: ``("disabled",)`` goes straight, ``("preparing",)`` stops half way,
        ``("preparing", "disabled")`` rolls twice with an approval each.
    :param pool: pool of all tasks. It limits the load, and is not a lock: the lease in Kafka prevents two rolls at a
        time. Give all DAGs of a cluster a pool of one slot to queue them; otherwise the second one is refused. Let the
        pool include deferred tasks, or a deferred task frees its slot.
    :param response_timeout: how long each approval waits; without it, for ever. No answer is never a yes.
    :param require_other_approver: the user who started a run may not approve its plans; see
        ``docs/connect/security.md``.
    :param approval: further arguments of the approvals, such as ``assigned_users`` or ``notifiers``.
    :param notifiers: notifiers of other providers that send a message, with ``{{ eos_message }}`` in their text, when a
        roll fails or pauses.
    :param settings: fields of ``RolloutSettings`` that differ from its defaults.
    :param deferrable: whether the rolls wait for their gates in the triggerer, without a worker's slot; default:
        ``[operators] default_deferrable``.
    :param default_args: of the tasks, as every DAG takes them. Approvals and rolls keep their own ``retries`` and
        ``retry_delay``; callbacks are called in addition to the notifiers.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    :raises ConfigurationError: the steps do not lead down.
    """
    modes = [Mode.parse(step) for step in steps]
    way = [Mode.ENABLED, *modes]
    if not modes or not all(above.is_above(below) for above, below in zip(way, modes, strict=False)):
        raise ConfigurationError(
            f"The steps {', '.join(steps) or '(none)'} are not a downgrade from enabled.",
            expected="disabled, or preparing, or preparing and disabled",
        )
    with make_dag(
        dag_id,
        schedule=None,
        pool=pool,
        default_args=default_args,
        params=run_params("back from exactly-once source support", "the cluster gives exactly-once up"),
        description=f"Roll the Kafka Connect cluster of {conn_id} back from exactly-once source support",
        doc=DOC.format(conn_id=conn_id, way=" → ".join(way)),
        tags=tags,
    ) as dag:
        chain_rolls(
            modes,
            conn_id=conn_id,
            settings=settings,
            approval=approval_arguments(
                approval,
                response_timeout=response_timeout,
                require_other_approver=require_other_approver,
                subject=SUBJECT,
            ),
            notifiers=notifiers,
            deferrable=deferrable,
            downwards=True,
        )
    return dag
