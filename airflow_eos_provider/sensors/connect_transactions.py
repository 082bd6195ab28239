"""Wait until no transaction holds up the readers of a Connect cluster's topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.sensors.deferrable import DeferrableSensor
from airflow_eos_provider.triggers.connect_transactions import ConnectTransactionsTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

POKE_SECONDS = 15.0


class ConnectTransactionsSensor(DeferrableSensor):
    """Succeeds when no transaction hangs, and none of the group's is open too long. It changes nothing.

    Its XCom is the audit's result. If a poll cannot check something, the sensor logs it and keeps waiting.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param topics: topics to check; by default all that the login may describe (templated).
    :param connectors: connectors whose open transactions to check; by default all of the group (templated).
    :param longer_than: seconds for which a transaction may be open; None: its own timeout.
    """

    template_fields: Sequence[str] = ("conn_id", "topics", "connectors")

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        topics: Sequence[str] = (),
        connectors: Sequence[str] = (),
        longer_than: float | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("poke_interval", POKE_SECONDS)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.topics = topics
        self.connectors = connectors
        self.longer_than = longer_than

    def look(self, context: Context) -> dict[str, Any] | None:
        from airflow_eos_provider.transactions.auditor import look_at_open

        found = look_at_open(
            KafkaConnectHook(self.conn_id).get_cluster(),
            topics=self.topics,
            connectors=self.connectors,
            open_seconds=self.longer_than,
        )
        is_clear = found.verdict == "pass"
        level = self.log.info if is_clear else self.log.warning
        level("%s", found.describe())
        return found.to_dict() if is_clear else None

    def make_trigger(self, context: Context, deadline: float) -> ConnectTransactionsTrigger:
        return ConnectTransactionsTrigger(
            conn_id=self.conn_id,
            topics=list(self.topics),
            connectors=list(self.connectors),
            longer_than=self.longer_than,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def timeout_text(self, context: Context, event: dict[str, Any]) -> str:
        return f"{event['reason']} (for {self.timeout:.0f} s)."
