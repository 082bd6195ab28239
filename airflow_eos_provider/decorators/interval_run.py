"""``@task.interval_run``: a function that returns a DataFrame, whose rows reach Kafka exactly once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.links.operator_links import SparkPageLink, show
from airflow_eos_provider.links.page import shown_url
from airflow_eos_provider.operators.interval_run import IntervalRun, end_spark_jobs, with_asset
from airflow_eos_provider.public_names import without_extra

try:
    from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
except ModuleNotFoundError as error:
    raise without_extra("@task.interval_run", "spark", error) from error

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.interval.interval import Run
    from airflow_eos_provider.interval.messages import Completed
    from airflow_eos_provider.interval.pipeline import Pipeline

#: What the function is given when the task runs; it may take any of them, by these names.
_GIVEN = ("spark", "sc", "interval")


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

#: Where a function keeps which of these it takes.
_HIDDEN = "_eos_given"


# The two bases declare op_kwargs with types that differ; @task.pyspark combines them in the same way.
class _IntervalRunDecoratedOperator(IntervalRun, DecoratedOperator, PySparkOperator):  # type: ignore[misc]
    """Calls the function in the task's own process, and writes what it returns.

    The session is made as ``@task.pyspark`` makes it: ``conn_id`` names a Spark connection (without one: ``local[*]``),
    ``config_kwargs`` holds Spark settings. With a connection of type ``spark_connect`` the driver is the server's,
    which all runs share, and this process is the run's coordinator alone; ``sc`` is None then.
    """

    custom_operator_name = "@task.interval_run"

    template_fields: Sequence[str] = (
        *PySparkOperator.template_fields,
        *IntervalRun.template_fields,
    )

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        _hide_given(python_callable)
        super().__init__(
            kwargs_to_upstream={"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs},
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            **kwargs,
        )
        self._wanted: tuple[Pipeline, Run, Context] | None = None
        self._completed: Completed | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        return self.write_once(context)

    def write(self, context: Context, pipeline: Pipeline, run: Run) -> Completed | None:
        self._wanted = (pipeline, run, context)
        DecoratedOperator.execute(self, context)
        return self._completed

    def on_kill(self) -> None:
        """End the Spark jobs of this task, which a shared server would go on with."""
        end_spark_jobs()
        super().on_kill()

    def execute_callable(self) -> Any:
        """Called by :class:`PySparkOperator` within the life of its session."""
        function = self.python_callable
        assert self._wanted is not None
        pipeline, run, context = self._wanted

        def write(*args: Any, spark: Any, **kwargs: Any) -> None:
            from airflow_eos_provider.interval.spark import write_interval
            from airflow_eos_provider.interval.spark.sessions import is_remote, look_often
            from airflow_eos_provider.interval.spark.spark_errors import spark_errors

            look_often(spark)
            spark_context = None if is_remote(spark) else spark.sparkContext
            show(self, context, SparkPageLink(), shown_url(getattr(spark_context, "uiWebUrl", None)))
            began_at = run.interval.require_ended(self.allow_before_end)
            given = {"spark": spark, "sc": spark_context, "interval": run.interval}
            arguments = inspect.signature(function).bind(*args, **kwargs).arguments
            with spark_errors(f"The function {function.__name__}"):
                frame = function(**{name: given[name] for name in getattr(function, _HIDDEN)}, **arguments)
            self._completed = write_interval(
                frame,
                pipeline,
                run.interval,
                revision=run.revision,
                slices=self.slices,
                key=self.key,
                slices_by=self.slices_by,
                tasks=self.spark_parallelism,
                pin_inputs=self.pin_inputs,
                began_at=began_at,
                selects_by_bounds=self.selects_by_bounds,
                allow_before_end=self.allow_before_end,
                report=lambda line: self.log.info("%s", line),
            )

        self.python_callable = write
        try:
            return PySparkOperator.execute_callable(self)
        finally:
            self.python_callable = function


def _hide_given(function: Callable[..., Any]) -> None:
    """Take out of the function's signature what it is given when it runs, so that Airflow asks for the rest only."""
    if hasattr(function, _HIDDEN):  # Airflow makes an operator anew for every task of a mapped one
        return
    signature = inspect.signature(function)
    others = [parameter for name, parameter in signature.parameters.items() if name not in _GIVEN]
    unfit = [parameter.name for parameter in others if parameter.kind not in _BY_NAME]
    if unfit:
        raise TypeError(f"@task.interval_run passes arguments by name, so {unfit[0]} of {function.__name__} cannot be.")
    setattr(function, _HIDDEN, tuple(name for name in _GIVEN if name in signature.parameters))
    function.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]


def interval_run_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Turn a function into a task that writes one interval exactly once.

    .. code-block:: python

        @task.interval_run(pipeline="orders", topic="orders", key="key", slices=8, conn_id="spark_default")
        def orders(spark, interval):
            return spark.read.parquet("…").where(…).selectExpr("order_id as key", "to_json(struct(*)) as value")

    The DAG needs data intervals: ``schedule=CronDataIntervalTimetable("@daily", timezone="UTC")``, or a
    ``DeltaDataIntervalTimetable``. ``"@daily"`` alone has none in Airflow 3, and such a run is refused; or give the
    task an ``interval``.

    :param python_callable: the function; it is called with ``spark``, ``sc`` and ``interval`` where it names them, and
        with its own arguments, and returns a DataFrame.
    :param kwargs: arguments of :class:`~airflow_eos_provider.operators.interval_run.IntervalRun`, of
        ``@task.pyspark`` (``conn_id``, ``config_kwargs``) and of every operator.
    """
    if "pipeline" in kwargs:  # Airflow takes a mapped task's outlets from these arguments
        kwargs = with_asset(kwargs["pipeline"], kwargs.get("group_id", DEFAULT_GROUP_ID), kwargs)
    return task_decorator_factory(
        python_callable=python_callable,
        decorated_operator_class=_IntervalRunDecoratedOperator,
        **kwargs,
    )
