"""The preflight of a group's connectors: a task that fails if a mode may not be switched on for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.failures import LookOperator, no_retry_where_pointless

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.preflight.preflight_report import Report

#: So many findings are in the XCom, the worst; the task's log has all.
FINDINGS_IN_XCOM = 200

#: So many findings are in the task's error.
_IN_ERROR = 20

#: Limit of one question to a worker, seconds: a validation may wait for the system that a connector reads.
_ANSWER_SECONDS = 30.0


class ConnectorFindingsOperator(LookOperator):
    """Ask every worker, and the brokers, what a mode does to each connector. It changes nothing.

    It fails if a finding blocks. Inconclusive findings do not fail it; they are in the log and in the XCom.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param mode: the mode that is asked about (templated).
    :param connectors: these only; none for all (templated).
    :param accept: findings that do not count, each as ``<connector>/<kind>`` (templated).
    :param seconds: limit of all questions to the workers together.
    :param fails_when_begun: whether it also fails if a worker runs in the mode ``enabled`` already. A DAG that rolls to
        this mode sets it to false: then finishing the roll is the shortest remedy.
    :returns: ``group``, ``mode``, ``verdict``, ``counts``, ``sources``, ``sinks``, and the 200 worst failed
        ``findings``; ``left_out`` is the number of omitted ones.
    :raises AirflowFailException: something blocks; with each reason and what to do.
    """

    template_fields: Sequence[str] = ("conn_id", "mode", "connectors", "accept")

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        mode: str = "enabled",
        connectors: Sequence[str] = (),
        accept: Sequence[str] = (),
        seconds: float = 300.0,
        fails_when_begun: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.mode = mode
        self.connectors = connectors
        self.accept = accept
        self.seconds = seconds
        self.fails_when_begun = fails_when_begun

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            report, has_begun = self._look()
        for line in report.lines(len(report.open)):
            self.log.info("%s", line)
        for key in report.unused:
            self.log.warning("%s is accepted, and is no finding.", key)
        self.log.info("%s", report.summary())
        if has_begun and not self.fails_when_begun:
            self.log.info("A worker runs in the mode enabled already, so nothing of this fails the task.")
        elif report.blocking:
            shown = "\n".join(f"  - {one.subject or 'all'}: {one}" for one in report.blocking[:_IN_ERROR])
            left = len(report.blocking) - _IN_ERROR
            more = f"\n  and {left} more, see the log" if left > 0 else ""
            raise AirflowFailException(f"The mode {report.mode} may not be switched on:\n{shown}{more}")
        return report.to_dict(limit=FINDINGS_IN_XCOM)

    def _look(self) -> tuple[Report, bool]:
        """What was found, and whether a worker runs exactly-once tasks already."""
        from airflow_eos_provider.connect.connect_session import ConnectSession
        from airflow_eos_provider.preflight.collect_facts import Scope, has_begun, look
        from airflow_eos_provider.preflight.preflight_report import Report

        mode = Mode.parse(self.mode)
        scope = Scope(tuple(self.connectors), self.seconds)
        with ConnectSession(KafkaConnectHook(self.conn_id).get_cluster(), answer_seconds=_ANSWER_SECONDS) as session:
            return Report.of(look(session, mode, scope), self.accept), has_begun(session)
