"""The DAG that checks a Kafka Connect cluster for drift, every 15 minutes, and its transactions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from airflow_eos_provider.dag_factories.dag import also_call, make_dag
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.notifications.drift import ConnectDriftNotifier
from airflow_eos_provider.operators.audit import ConnectDriftAuditOperator, ConnectTransactionsAuditOperator
from airflow_eos_provider.operators.run_conf import refuse_unknown_conf

#: A run costs two task processes and queries of every worker and partition leader. Who has to know sooner uses
#: ``ConnectDriftSensor``, which notices a changed group within seconds, without a process of its own.
SCHEDULE = timedelta(minutes=15)

#: A look that takes longer than this hangs; the next one must get its turn.
LOOK_TIMEOUT = timedelta(minutes=2)

#: Airflow schedules nothing without a date to begin at; with ``catchup`` off any past one does.
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

DOC = """
### Is the Kafka Connect cluster of connection `{conn_id}` still as the last rollout left it?

Fails when a worker runs in another mode, a member of the group is not in the cluster file, a worker is missing, a
worker's file was edited, or a rollout is unfinished; the message says what to do about each. It changes nothing.
While a rollout is carried out, what that rollout does is not reported as drift.

`look_at_transactions` fails when a transaction hangs or is open past its timeout, the brokers are about to forget the
transactional id of a task that is idle, or two groups of the Kafka cluster share ids, topics or a group id.
"""


def audit_dag(
    *,
    conn_id: str = KafkaConnectHook.default_conn_name,
    dag_id: str = "connect_audit",
    schedule: Any = SCHEDULE,
    mode: str | None = None,
    accept: Sequence[str] = (),
    notifiers: Sequence[BaseNotifier] = (),
    repeat: bool = False,
    transactions: bool = True,
    pool: str = "default_pool",
    default_args: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka-connect", "exactly-once"),
) -> DAG:
    """The audit of one cluster, for a DAG file of a few lines. Make one DAG per cluster.

    :param conn_id: a connection of type ``kafka_connect``.
    :param dag_id: the DAG's id; one for each cluster.
    :param schedule: how often, as every DAG takes it; by default every 15 minutes. To notice drift within seconds, use
        a deferred :class:`~airflow_eos_provider.sensors.connect_drift.ConnectDriftSensor`.
    :param mode: the expected mode; default: the mode of the last rollout.
    :param accept: SHA-256 of workers' files that are correct although no rollout wrote them.
    :param notifiers: notifiers that send the message, with ``{{ drift_message }}`` in their text.
    :param repeat: report the same drift in every audit, not only in the first.
    :param transactions: whether to check transactions, too; this queries every partition's leader.
    :param pool: pool of the tasks. Do not use the pool of the rolls: a roll occupies its slot until it ends.
    :param default_args: of the tasks, as every DAG takes them. They keep their own ``execution_timeout``; callbacks are
        called in addition to the notifiers.
    :param tags: the DAG's tags.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    """
    with make_dag(
        dag_id,
        schedule=schedule,
        start_date=_BEGIN,
        pool=pool,
        default_args=default_args,
        description=f"Look for drift in the Kafka Connect cluster of {conn_id}",
        doc=DOC.format(conn_id=conn_id),
        tags=tags,
    ) as dag:
        common: dict[str, Any] = {
            "conn_id": conn_id,
            "pre_execute": refuse_unknown_conf,
            "execution_timeout": LOOK_TIMEOUT,
        }
        ConnectDriftAuditOperator(task_id="look_for_drift", mode=mode, accept=accept, **common)
        if transactions:
            ConnectTransactionsAuditOperator(task_id="look_at_transactions", **common)
        for task in dag.tasks:
            also_call(ConnectDriftNotifier(notifiers=notifiers, repeat=repeat), task, "on_failure_callback")
    return dag
