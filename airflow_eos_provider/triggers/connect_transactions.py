"""The trigger that waits until no transaction blocks readers; like every trigger it only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_eos_provider.triggers.polling import PollingTrigger


class ConnectTransactionsTrigger(PollingTrigger):
    """Resumes the task when nothing holds readers up; the task looks once more.

    Its event: ``{"status": "look", "deadline": …}``.
    """

    is_fresh = True
    conn_id: str
    topics: Sequence[str]
    connectors: Sequence[str]
    longer_than: float | None

    def ask(self) -> tuple[dict[str, Any] | None, str]:
        from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
        from airflow_eos_provider.transactions.auditor import look_at_open

        found = look_at_open(
            KafkaConnectHook(self.conn_id).get_cluster(logs_in=False),
            topics=self.topics,
            connectors=self.connectors,
            open_seconds=self.longer_than,
        )
        is_clear = found.verdict == "pass"
        return ({"status": "look", "deadline": self.deadline} if is_clear else None), found.describe()
