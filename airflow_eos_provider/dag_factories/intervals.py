"""The DAG that writes a pipeline interval by interval."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, DeltaDataIntervalTimetable, Param
from airflow.sdk.timezone import coerce_datetime
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import TimeRestriction
from airflow.timetables.simple import ContinuousTimetable
from dateutil.relativedelta import relativedelta  # type: ignore[import-untyped]

from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.pipeline import DEFAULT_KAFKA_CONN_ID
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.operators.interval_run import RUN_RETRY_DELAY, IntervalRunOperator
from airflow_eos_provider.operators.run_conf import refuse_unknown_conf

DOC = """
### Interval runs of the pipeline `{pipeline}`

Each run writes one data interval into Kafka exactly once, slice by slice; its asset gets an event when it is complete.

* **Backfill** as you like: intervals do not fence one another, so they may run in parallel and in any order.
* **Clear** a finished run: it is a quick no-op, because the ledger in Kafka says that the interval is complete.
* **Retry** of a failed run: it continues with the remaining slices.
* **Triggered manually**, a run has no data interval: give `interval` in the form (`start/end`, ISO 8601 with offsets).
* To write an interval again on purpose, use a **revision**: give `revision` 2, 3 … in the form.
"""


def interval_run_dag(
    *,
    pipeline: str,
    python_callable: Callable[..., Any] | str,
    schedule: Any = "@daily",
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    dag_id: str | None = None,
    group_id: str = DEFAULT_GROUP_ID,
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    spark_conn_id: str = "spark_default",
    topic: str | None = None,
    op_kwargs: Mapping[str, Any] | None = None,
    slices: int = 4,
    key: str | Sequence[str] = "key",
    max_active_runs: int = 4,
    retry_delay: timedelta = RUN_RETRY_DELAY,
    pool: str = "default_pool",
    default_args: Mapping[str, Any] | None = None,
    tags: Collection[str] = ("kafka", "exactly-once", "intervals"),
    **operator: Any,
) -> DAG:
    """One pipeline, for a DAG file of a few lines.

    :param pipeline: its name; also the task's.
    :param python_callable: a function of a module, ``"package.module:function"`` or ``"/path/of/file.py:function"``,
        called as ``function(spark, interval, **op_kwargs)``; see ``IntervalRunOperator``.
    :param schedule: a cron string, a preset such as ``"@daily"`` (by the clock of ``start_date``'s time zone), a
        ``timedelta``, or a timetable with data intervals. None: only manual runs, each with ``interval`` in its form.
        A string or ``timedelta`` always has data intervals here, whether or not
        ``[scheduler] create_cron_data_intervals`` is set.
    :param start_date: the first moment that may be written.
    :param end_date: the moment at which the schedule ends; None if it does not.
    :param dag_id: the DAG's id; ``<pipeline>_intervals`` if not given.
    :param group_id: prefix of the pipeline's topics and transactional ids; never a Connect cluster's group.
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect``.
    :param spark_conn_id: a Spark connection; it names the master.
    :param topic: where records go that name no topic themselves.
    :param op_kwargs: further arguments of the function (templated).
    :param slices: how many slices the rows are put into.
    :param key: the columns whose hash decides a row's slice; the same in every attempt.
    :param max_active_runs: how many intervals may be written at once, in a backfill above all.
    :param retry_delay: time between two tries of the task.
    :param pool: pool of the task.
    :param default_args: of the task, as every DAG takes them.
    :param tags: the DAG's tags.
    :param operator: other arguments of ``IntervalRunOperator`` (``selects_by_bounds``, ``allow_before_end`` …) and
        ``SparkSubmitOperator``.
    :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
    :raises ConfigurationError: the schedule has no data intervals: assets, ``"@once"``, ``"@continuous"``, a timetable
        that only triggers.
    """
    dag_id = dag_id or f"{pipeline}_intervals"
    with make_dag(
        dag_id,
        schedule=_with_data_intervals(schedule, DAG(dag_id, start_date=start_date)),
        start_date=start_date,
        end_date=end_date,
        max_active_runs=max_active_runs,
        pool=pool,
        default_args={"retry_delay": retry_delay, **(default_args or {})},
        params={
            "interval": Param(
                None,
                title="Interval",
                type=["null", "string"],
                description="Only for a manual run: start/end in ISO 8601 with offsets, as in "
                "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z.",
            ),
            "revision": Param(
                1,
                title="Revision",
                type="integer",
                minimum=1,
                description="1, the default, writes the interval if it is not complete; 2 and more write a complete "
                "one once again.",
            ),
        },
        description=f"Write {pipeline} into Kafka exactly once, interval by interval",
        doc=DOC.format(pipeline=pipeline),
        tags=tags,
    ) as dag:
        IntervalRunOperator(
            task_id="write",
            pipeline=pipeline,
            group_id=group_id,
            kafka_conn_id=kafka_conn_id,
            conn_id=spark_conn_id,
            topic=topic,
            interval="{{ params.interval or '' }}",
            revision="{{ params.revision }}",
            python_callable=python_callable,
            op_kwargs=op_kwargs,
            slices=slices,
            key=key,
            **{"pre_execute": refuse_unknown_conf, **operator},
        )
    return dag


def _with_data_intervals(schedule: Any, dag: DAG) -> Any:
    """The schedule as a timetable with data intervals."""
    if schedule is None:
        return None
    if isinstance(schedule, timedelta | relativedelta):
        return DeltaDataIntervalTimetable(schedule)
    if isinstance(schedule, str) and schedule not in ("@once", "@continuous"):
        return CronDataIntervalTimetable(schedule, timezone=dag.timezone)
    if not _has_data_intervals(schedule, dag.start_date or datetime(2000, 1, 1, tzinfo=UTC)):
        raise ConfigurationError(
            f"The schedule {schedule!r} of the DAG {dag.dag_id} has no data intervals, so no run would write anything.",
            expected="a cron string, a preset such as '@daily', a timedelta, or a timetable with data intervals, such "
            'as CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York")',
            remedy="To write after an asset or without a schedule, put IntervalRunOperator into a DAG of your own and "
            "give it an interval.",
        )
    return schedule


def _has_data_intervals(schedule: Any, start: datetime) -> bool:
    """Whether the first run of a timetable has an interval with width, and runs come from the clock alone."""
    if not hasattr(schedule, "can_be_scheduled") or schedule.asset_condition:
        return False
    timetable = coerce_to_core_timetable(schedule)
    restriction = TimeRestriction(earliest=coerce_datetime(start), latest=None, catchup=True)
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    if isinstance(timetable, ContinuousTimetable) or info is None or info.data_interval is None:
        return False
    return bool(info.data_interval.start < info.data_interval.end)
