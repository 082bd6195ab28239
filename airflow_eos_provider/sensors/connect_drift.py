"""Wait until a Connect cluster drifts from what the last rollout made of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.sensors.deferrable import DEFERS, DeferrableSensor
from airflow_eos_provider.triggers.connect_drift import ConnectDriftTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.rollout.drift.watch import DriftWatch

#: A changed group is noticed within this many seconds, anything else within :data:`LOOK_SECONDS`.
POKE_SECONDS = 5.0
LOOK_SECONDS = 30.0


class ConnectDriftSensor(DeferrableSensor):
    """Succeeds when something has drifted; its XCom is the drift. It changes nothing.

    If a poll cannot check a part of the cluster, the sensor logs it and keeps waiting: that is not drift, and not
    proof of its absence. The audit DAG fails in this case.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param connect_mode: the expected mode; default: the mode of the last rollout (templated). ``mode`` is
        Airflow's setting of every sensor: ``poke`` or ``reschedule``.
    :param accept: SHA-256 of workers' files that are correct although no rollout wrote them (templated).
    :param look_interval: when deferred, seconds after which to check the cluster even if its group has not changed.
    """

    template_fields: Sequence[str] = ("conn_id", "connect_mode", "accept")

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        connect_mode: str | None = None,
        accept: Sequence[str] = (),
        look_interval: float = LOOK_SECONDS,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("poke_interval", POKE_SECONDS if kwargs.get("deferrable", DEFERS) else LOOK_SECONDS)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.connect_mode = connect_mode
        self.accept = accept
        self.look_interval = look_interval
        self._watch: DriftWatch | None = None

    def look(self, context: Context) -> dict[str, Any] | None:
        drift = self._watcher().look(stable_seconds=0.0)
        level = self.log.warning if drift.findings or drift.doubts else self.log.info
        level("%s", drift.describe())
        return drift.to_dict() if drift.findings else None

    def make_trigger(self, context: Context, deadline: float) -> ConnectDriftTrigger:
        return ConnectDriftTrigger(
            conn_id=self.conn_id,
            members=sorted(self._watcher().members),
            poke_interval=self.poke_interval,
            look_at=time.time() + self.look_interval,
            deadline=deadline,
        )

    def timeout_text(self, context: Context, event: dict[str, Any]) -> str:
        return f"Nothing has drifted within {self.timeout:.0f} s."

    def go_on(self, context: Context, event: dict[str, Any]) -> Any:
        self.log.info("Looking, since %s", event["reason"])
        return super().go_on(context, event)

    def _watcher(self) -> DriftWatch:
        from airflow_eos_provider.rollout.drift.watch import DriftWatch

        if self._watch is None:
            mode = Mode.parse(self.connect_mode) if self.connect_mode else None
            self._watch = DriftWatch(KafkaConnectHook(self.conn_id).get_cluster(), mode=mode, accept=self.accept)
        return self._watch
