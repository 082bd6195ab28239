"""Retries of tasks: how many, and which failures they can remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.errors import (
    ConfigurationError,
    FencedError,
    GateFailedError,
    LeaseHeldError,
    RefusedError,
    StopRequestedError,
)

#: A task process that is killed leaves a lease of four minutes behind (``RolloutSettings.lease_seconds``) unless its
#: death can be proven, so the tries together wait for longer than that.
ROLL_RETRIES = 9
ROLL_RETRY_DELAY = timedelta(seconds=30)


class LookOperator(BaseOperator):
    """Only reads; a rebalance may interrupt it, so it is tried again.

    :param retries: tries after the first.
    :param retry_delay: time between two tries.
    """

    def __init__(self, *, retries: int = 3, retry_delay: timedelta = timedelta(seconds=10), **kwargs: Any) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)


#: A person has to act first, so a retry would only repeat the message, or worse: restart a worker that was put back.
_FINAL = (ConfigurationError, RefusedError, FencedError, GateFailedError, StopRequestedError)


@contextmanager
def no_retry_where_pointless() -> Iterator[None]:
    """Turn errors that need a person into :class:`AirflowFailException`; the others stay as they are and are retried.

    Retried are a lease that another controller holds (it ends), what could not be reached, and a pause: on the next try
    the cluster is observed again, and the roll goes on if the doubt has gone.
    """
    try:
        yield
    except LeaseHeldError:
        raise
    except _FINAL as error:
        raise AirflowFailException(str(error)) from error
