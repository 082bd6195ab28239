"""Which failures a retry can remedy, and which it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.errors import (
    ConfigurationError,
    FencedError,
    GateFailedError,
    LeaseHeldError,
    RefusedError,
    StopRequestedError,
)

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
