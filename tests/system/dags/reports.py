"""What no DAG of the repository has: a deferred sensor, notifiers of failures, fixed ACL requests, another cluster."""

from __future__ import annotations

import logging
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from airflow_eos_provider.dag_factories import acl_grant_dag, acl_revoke_dag, downgrade_dag
from airflow_eos_provider.notifications import ConnectRollNotifier, IntervalLateNotifier
from airflow_eos_provider.operators import ConnectRollingUpgradeOperator
from airflow_eos_provider.sensors import ConnectTransactionsSensor, IntervalCompleteSensor


class Channel(BaseNotifier):
    """Stands for a chat's notifier."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        logging.getLogger("channel").error("sent: %s", self.text)


channels = [Channel("{{ eos_message }}")]

with DAG("transactions_sensor", schedule=None, catchup=False):
    ConnectTransactionsSensor(task_id="wait", topics=["late"], deferrable=True, poke_interval=2, timeout=600)

with DAG("failures", schedule=None, catchup=False):
    ConnectRollingUpgradeOperator(
        task_id="roll", plan={}, approval=None, on_failure_callback=[ConnectRollNotifier(notifiers=channels)]
    )
    IntervalCompleteSensor(
        task_id="late",
        pipeline="orders",
        interval="2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
        timeout=0,
        on_failure_callback=[IntervalLateNotifier(notifiers=channels)],
    )

RIGHTS: dict[str, Any] = {"pipelines": "eos-intervals/orders:orders", "interval_principal": "User:spark"}
grant = acl_grant_dag(dag_id="grant", **RIGHTS)
revoke = acl_revoke_dag(dag_id="revoke", **RIGHTS)

# Its only worker is restarted.
second = downgrade_dag(conn_id="second", dag_id="second_exactly_once_downgrade", settings={"allow_downtime": True})
