"""Wait until an interval of a pipeline is complete: until everything it wrote can be read, and nothing can follow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.pipeline import DEFAULT_GROUP_ID, DEFAULT_KAFKA_CONN_ID, find_pipeline, run_of
from airflow_eos_provider.triggers.interval_complete import IntervalCompleteTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.interval.interval import Run

#: The trigger reports a timeout; this much later Airflow itself would, without our message.
_BACKSTOP = timedelta(minutes=5)


class IntervalCompleteSensor(BaseSensorOperator):
    """Succeeds when the ledger says that the interval is complete; its XCom is what the ledger says.

    :param pipeline: name of the pipeline (templated).
    :param group_id: the group that it belongs to (templated).
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect`` (templated).
    :param interval: ``start/end`` in ISO 8601 with offsets (templated); without it the DAG run's data interval.
    :param revision: which revision of the interval (templated).
    :param deferrable: wait in the triggerer, without a worker's slot; default: ``[operators] default_deferrable``.
    :param pipeline_options: further fields of :class:`~airflow_eos_provider.interval.pipeline.Pipeline`.
    """

    template_fields: Sequence[str] = ("pipeline", "group_id", "kafka_conn_id", "interval", "revision")

    def __init__(
        self,
        *,
        pipeline: str,
        group_id: str = DEFAULT_GROUP_ID,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        interval: str | None = None,
        revision: int | str = 1,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        pipeline_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.group_id = group_id
        self.kafka_conn_id = kafka_conn_id
        self.interval = interval
        self.revision = revision
        self.deferrable = deferrable
        self.pipeline_options = pipeline_options

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        first = self.poke(context)
        if first:
            return first.xcom_value
        # The start of the task, not of this try or deferral, so that the timeout is one for all of them.
        deadline = context["ti"].start_date.timestamp() + self.timeout
        self.defer(
            trigger=IntervalCompleteTrigger(
                run=self._run(context).name,
                pipeline=self._find_arguments(),
                poke_interval=self.poke_interval,
                deadline=deadline,
            ),
            method_name="resume",
            timeout=timedelta(seconds=max(deadline - time.time(), 0)) + _BACKSTOP,
        )

    def poke(self, context: Context) -> PokeReturnValue:
        from airflow_eos_provider.interval.verify import completion

        try:
            run = self._run(context)
            done = completion(find_pipeline(**self._find_arguments()), run)
        except ConfigurationError as error:  # waiting does not remedy that
            raise AirflowFailException(str(error)) from error
        self.log.info("%s is %s", run.name, "not complete yet" if done is None else "complete")
        return PokeReturnValue(is_done=done is not None, xcom_value=None if done is None else done.to_dict())

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Called with the trigger's event."""
        status = event.pop("status")
        if status == "timeout":
            raise AirflowSensorTimeout(f"{self._run(context).name} was not complete within {self.timeout:.0f} s.")
        if status == "error":
            raise AirflowFailException(event["reason"])
        self.log.info("%s is complete", event["run"])
        return event

    def _run(self, context: Context) -> Run:
        return run_of(context, self.pipeline, self.interval, self.revision)

    def _find_arguments(self) -> dict[str, Any]:
        return {
            "name": self.pipeline,
            "group_id": self.group_id,
            "kafka_conn_id": self.kafka_conn_id,
            "options": dict(self.pipeline_options or {}),
        }
