"""The audit of a Connect cluster: a task that fails with each drift and its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.audit import AuditError, AuditOperator, ConnectUnseenError

if TYPE_CHECKING:
    from airflow_eos_provider.rollout.drift.drift import Drift

__all__ = ["KEYS", "ConnectDriftAuditOperator", "ConnectDriftError", "ConnectUnseenError"]

#: XCom of what an audit has found. Renaming it makes one audit report again what was reported before.
KEYS = "drift_keys"


class ConnectDriftError(AuditError):
    """The cluster has drifted.

    :ivar is_news: whether the audit before has not found all of it already.
    """


class ConnectDriftAuditOperator(AuditOperator):
    """Check once, and fail if something has drifted. It changes nothing.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param mode: the expected mode; default: the mode of the last rollout (templated).
    :param accept: SHA-256 of workers' files that are correct although no rollout wrote them (templated).
    :returns: the drift found, from ``Drift.to_dict``.
    :raises ConnectDriftError: something has drifted; each finding with what to do.
    :raises ConnectUnseenError: a part of the cluster could not be checked.
    """

    template_fields: Sequence[str] = ("conn_id", "mode", "accept")
    keys = KEYS
    failure = ConnectDriftError

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        mode: str | None = None,
        accept: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.mode = mode
        self.accept = accept

    def look(self) -> Drift:
        """One look for drift."""
        from airflow_eos_provider.rollout.drift.watch import DriftWatch

        mode = Mode.parse(self.mode) if self.mode else None
        return DriftWatch(KafkaConnectHook(self.conn_id).get_cluster(), mode=mode, accept=self.accept).look()
