"""Audits: check once, fail with the findings, and tell new findings from known ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.failures import LookOperator
from airflow_eos_provider.transactions.audit import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.finding import Audit
    from airflow_eos_provider.rollout.drift.drift import Drift
    from airflow_eos_provider.transactions.audit import TransactionAudit


class AuditError(AirflowFailException):
    """Something was found; worth no other try.

    :ivar is_news: whether the audit before has not found all of it already.
    """

    is_news = True


class ConnectUnseenError(AirflowException):
    """It is not known whether all is well; worth another try.

    :ivar is_news: whether the audit before could see it.
    """

    is_news = True


class AuditOperator(LookOperator):
    """Look once, and fail if something is found. It changes nothing.

    :cvar keys: XCom under which each audit leaves what it has found, so that the next one reports only what is new.
        Renaming it makes one audit report again what was reported before.
    :cvar failure: the error of a finding.
    :param retries: tries after the first.
    """

    keys: ClassVar[str]
    failure: ClassVar[type[AuditError]] = AuditError

    def __init__(self, *, retries: int = 1, **kwargs: Any) -> None:
        super().__init__(retries=retries, **kwargs)

    @abstractmethod
    def look(self) -> Audit:
        """One look."""

    def execute(self, context: Context) -> dict[str, Any]:
        ti = context["ti"]
        # Without map_indexes Airflow gives the values of all earlier runs, in no order; with it, the newest one.
        before = set(ti.xcom_pull(task_ids=ti.task_id, key=self.keys, map_indexes=-1, include_prior_dates=True) or ())
        try:
            found = self.look()
        except EosError as error:
            ti.xcom_push(key=self.keys, value=["unreachable"])
            kind = self.failure if isinstance(error, ConfigurationError) else ConnectUnseenError
            raise _failure(kind, str(error), {"unreachable"} - before) from error
        ti.xcom_push(key=self.keys, value=list(found.keys))
        news = set(found.keys) - before
        if found.findings:
            raise _failure(self.failure, found.describe(), news)
        if found.doubts:
            raise _failure(ConnectUnseenError, found.describe(), news)
        self.log.info("%s", found.describe())
        return found.to_dict()


def _failure(
    kind: type[AuditError] | type[ConnectUnseenError], message: str, news: set[str]
) -> AuditError | ConnectUnseenError:
    error = kind(message)
    error.is_news = bool(news)
    return error


#: XCom of what an audit has found. Renaming it makes one audit report again what was reported before.
DRIFT_KEYS = "drift_keys"


class ConnectDriftError(AuditError):
    """The cluster has drifted."""


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
    keys = DRIFT_KEYS
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


#: XCom of what an audit has found. Renaming it makes one audit report again what was reported before.
TRANSACTIONS_KEYS = "transactions_keys"


class ConnectTransactionsError(AuditError):
    """The audit of transactions has found something."""


class ConnectTransactionsAuditOperator(AuditOperator):
    """Look once, and fail if a transaction hangs, is open too long, an id is about to expire, or two groups collide.

    It changes nothing. Open transactions, hanging ones and collisions are looked for on the whole Kafka cluster, ids
    near their expiration among the tasks of this Connect cluster.

    :param conn_id: a connection of type ``kafka_connect`` (templated).
    :param config_topic: the workers' ``config.storage.topic``, where their files cannot be read (templated).
    :param topics: where hanging ones are looked for; by default all topics that one may see (templated).
    :param longer_than: seconds for which a transaction may be open; None for its own timeout.
    :param idle_part: part of ``transactional.id.expiration.ms`` after which an idle id is named.
    :param days_before: or so many days before it is over, whichever comes first; not in its first half.
    :returns: the result of the audit, as ``Audit.to_dict`` gives it.
    :raises ConnectTransactionsError: something was found; each finding with what to do.
    :raises ConnectUnseenError: not everything could be checked.
    """

    template_fields: Sequence[str] = ("conn_id", "config_topic", "topics")
    keys = TRANSACTIONS_KEYS
    failure = ConnectTransactionsError

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        config_topic: str | None = None,
        topics: Sequence[str] = (),
        longer_than: float | None = None,
        idle_part: float = DEFAULT_LIMITS.idle_part,
        days_before: float = DEFAULT_LIMITS.days_before,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.config_topic = config_topic
        self.topics = topics
        self.longer_than = longer_than
        self.idle_part = idle_part
        self.days_before = days_before

    def look(self) -> TransactionAudit:
        """One look at the transactions."""
        from airflow_eos_provider.transactions.auditor import Auditor

        cluster = KafkaConnectHook(self.conn_id).get_cluster()
        limits = Limits(self.longer_than, self.idle_part, self.days_before)
        with Auditor(cluster, config_topic=self.config_topic or None, topics=self.topics, limits=limits) as auditor:
            return auditor.look()
