"""Wait until an interval of a pipeline is complete: until everything it wrote can be read, and nothing can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.hooks.pipeline import DEFAULT_KAFKA_CONN_ID, find_pipeline, run_of
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.sensors.deferrable import DeferrableSensor
from airflow_eos_provider.triggers.interval_complete import IntervalCompleteTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.interval.interval import Run


class IntervalCompleteSensor(DeferrableSensor):
    """Succeeds when the ledger says that the interval is complete; its XCom is what the ledger says.

    :param pipeline: name of the pipeline (templated).
    :param group_id: the group that it belongs to (templated).
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect`` (templated).
    :param interval: ``start/end`` in ISO 8601 with offsets (templated); without it the DAG run's data interval.
    :param revision: which revision of the interval (templated).
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
        pipeline_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.group_id = group_id
        self.kafka_conn_id = kafka_conn_id
        self.interval = interval
        self.revision = revision
        self.pipeline_options = pipeline_options

    def look(self, context: Context) -> dict[str, Any] | None:
        from airflow_eos_provider.interval.verify import completion

        run = self._run(context)
        done = completion(find_pipeline(**self._find_arguments()), run)
        self.log.info("%s is %s", run.name, "not complete yet" if done is None else "complete")
        return None if done is None else done.to_dict()

    def make_trigger(self, context: Context, deadline: float) -> IntervalCompleteTrigger:
        return IntervalCompleteTrigger(
            run_name=self._run(context).name,
            pipeline=self._find_arguments(),
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def timeout_text(self, context: Context, event: dict[str, Any]) -> str:
        return f"{self._run(context).name} was not complete within {self.timeout:.0f} s."

    def go_on(self, context: Context, event: dict[str, Any]) -> Any:
        """The trigger has seen the record; it is the answer."""
        self.log.info("%s is complete", event["run"])
        return {name: value for name, value in event.items() if name != "status"}

    def _run(self, context: Context) -> Run:
        return run_of(context, self.pipeline, self.interval, self.revision)

    def _find_arguments(self) -> dict[str, Any]:
        return {
            "name": self.pipeline,
            "group_id": self.group_id,
            "kafka_conn_id": self.kafka_conn_id,
            "options": dict(self.pipeline_options or {}),
        }
