"""The audit of a Connect cluster: a task that fails with what has drifted and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.rollout.drift.drift import Drift

#: XCom under which each audit leaves what it has found, so that the next one reports only what is new.
#: Renaming it makes one audit report again what was reported before.
KEYS = "drift_keys"

RETRIES = 1
RETRY_DELAY = timedelta(seconds=10)


class ConnectDriftError(AirflowFailException):
    """The cluster has drifted.

    :ivar is_news: whether the audit before has not found all of it already.
    """

    is_news = True


class ConnectUnseenError(AirflowException):
    """It is not known whether the cluster has drifted; worth another try.

    :ivar is_news: whether the audit before could see it.
    """

    is_news = True


class ConnectDriftAuditOperator(BaseOperator):
    """Look once, and fail if something has drifted. It changes nothing.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param mode: the mode that is meant, whatever the last rollout has made (templated).
    :param accept: SHA-256 of workers' files that are as meant though no rollout made them (templated).
    :returns: the look, as ``Drift.to_dict`` gives it.
    :raises ConnectDriftError: something has drifted; each finding with what to do.
    :raises ConnectUnseenError: it is not known; what is not seen is unknown, not fine.
    """

    template_fields: Sequence[str] = ("conn_id", "mode", "accept")

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        mode: str | None = None,
        accept: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", RETRIES)
        kwargs.setdefault("retry_delay", RETRY_DELAY)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.mode = mode
        self.accept = accept

    def execute(self, context: Context) -> dict[str, Any]:
        ti = context["ti"]
        # Without map_indexes Airflow gives the values of all earlier runs, in no order; with it, the newest one.
        before = set(ti.xcom_pull(task_ids=ti.task_id, key=KEYS, map_indexes=-1, include_prior_dates=True) or ())
        try:
            drift = self._look()
        except EosError as error:
            ti.xcom_push(key=KEYS, value=["unreachable"])
            kind = ConnectDriftError if isinstance(error, ConfigurationError) else ConnectUnseenError
            raise _failure(kind, str(error), {"unreachable"} - before) from error
        ti.xcom_push(key=KEYS, value=list(drift.keys))
        if drift.findings:
            raise _failure(ConnectDriftError, drift.describe(), set(drift.keys) - before)
        if drift.doubts:
            raise _failure(ConnectUnseenError, drift.describe(), set(drift.keys) - before)
        self.log.info("%s", drift.describe())
        return drift.to_dict()

    def _look(self) -> Drift:
        from airflow_eos_provider.rollout.drift.watch import DriftWatch

        mode = Mode.parse(self.mode) if self.mode else None
        return DriftWatch(KafkaConnectHook(self.conn_id).get_cluster(), mode=mode, accept=self.accept).look()


def _failure(
    kind: type[ConnectDriftError] | type[ConnectUnseenError], message: str, news: set[str]
) -> ConnectDriftError | ConnectUnseenError:
    error = kind(message)
    error.is_news = bool(news)
    return error
