"""A sensor that waits in its own task or in the triggerer, with one timeout for all of its deferrals."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from airflow_eos_provider.errors import ConfigurationError, EosError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

#: The trigger reports a timeout; this much later Airflow itself would, without our message.
_BACKSTOP = timedelta(minutes=5)

DEFERS = conf.getboolean("operators", "default_deferrable", fallback=False)


class DeferrableSensor(BaseSensorOperator):
    """Looks at once; deferred, it looks again whenever its trigger reports something.

    :param deferrable: wait in the triggerer, without a worker's slot; default: ``[operators] default_deferrable``.
    """

    def __init__(self, *, deferrable: bool = DEFERS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def look(self, context: Context) -> dict[str, Any] | None:
        """One look: the sensor's result; None if what it waits for has not come."""

    @abstractmethod
    def make_trigger(self, context: Context, deadline: float) -> BaseTrigger:
        """What waits in the triggerer; it reports a timeout at the deadline, seconds since the epoch."""

    @abstractmethod
    def timeout_text(self, context: Context, event: dict[str, Any]) -> str:
        """In words, what has not come within the sensor's timeout."""

    def poke(self, context: Context) -> PokeReturnValue:
        try:
            found = self.look(context)
        except ConfigurationError as error:  # waiting does not remedy that
            raise AirflowFailException(str(error)) from error
        except EosError as error:
            self.log.warning("Nothing can be checked now: %s", error.found)
            found = None
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        # The start of the task, not of this try or deferral, so that the timeout is one for all of them.
        return self._look_or_defer(context, context["ti"].start_date.timestamp() + self.timeout)

    def _look_or_defer(self, context: Context, deadline: float) -> Any:
        found = self.poke(context)
        if found:
            return found.xcom_value
        self.defer(
            trigger=self.make_trigger(context, deadline),
            method_name="resume",
            timeout=timedelta(seconds=max(deadline - time.time(), 0)) + _BACKSTOP,
        )

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Called with the trigger's event."""
        if event["status"] == "timeout":
            raise AirflowSensorTimeout(self.timeout_text(context, event))
        if event["status"] == "error":
            raise AirflowFailException(event["reason"])
        return self.go_on(context, event)

    def go_on(self, context: Context, event: dict[str, Any]) -> Any:
        """After the trigger has reported something: look again."""
        return self._look_or_defer(context, event["deadline"])
