"""Common code of the audits: check once, fail with the findings, and tell new findings from known ones."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_eos_provider.errors import ConfigurationError, EosError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.finding import Audit

RETRIES = 1
RETRY_DELAY = timedelta(seconds=10)


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


class AuditOperator(BaseOperator):
    """Look once, and fail if something is found. It changes nothing.

    :cvar keys: XCom under which each audit leaves what it has found, so that the next one reports only what is new.
        Renaming it makes one audit report again what was reported before.
    :cvar failure: the error of a finding.
    """

    keys: ClassVar[str]
    failure: ClassVar[type[AuditError]] = AuditError

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("retries", RETRIES)
        kwargs.setdefault("retry_delay", RETRY_DELAY)
        super().__init__(**kwargs)

    @abstractmethod
    def look(self) -> Audit:
        """One look.

        :raises EosError: the cluster cannot be looked at.
        """

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
