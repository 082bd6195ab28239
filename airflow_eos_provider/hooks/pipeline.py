"""Makes a pipeline of interval runs from an Airflow connection, and finds the run that a task is for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook, client_properties, mask
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from airflow_eos_provider.interval.interval import Interval, Run
    from airflow_eos_provider.interval.pipeline import Pipeline

#: The connection of Airflow's own Kafka provider that is taken when none is named.
DEFAULT_KAFKA_CONN_ID = "kafka_default"


def kafka_settings(conn_id: str = DEFAULT_KAFKA_CONN_ID) -> KafkaSettings:
    """How to reach the brokers of a connection. Whatever is secret in it is masked in Airflow's logs first.

    Blocking; a trigger calls it by ``sync_to_async``.

    :param conn_id: a connection of type ``kafka``, or of type ``kafka_connect``, of which only the brokers are used.
    :raises ConfigurationError: with the connection's name and what is wrong in it.
    """
    connection = BaseHook.get_connection(conn_id)
    if connection.conn_type == KafkaConnectHook.conn_type:
        return KafkaConnectHook(conn_id).get_cluster().kafka
    if connection.conn_type != "kafka":
        raise ConfigurationError(
            f"The connection {conn_id} is of type {connection.conn_type!r}.",
            expected="type 'kafka' (apache-airflow-providers-apache-kafka) or 'kafka_connect'",
        )
    properties = client_properties(connection)
    mask(properties)
    try:
        return KafkaSettings(properties)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Connection {conn_id}: {error.found}",
            remedy='Write {"bootstrap.servers": "host:port", …} into its extra (Admin > Connections).',
        ) from error


def find_pipeline(
    name: str,
    *,
    group_id: str = DEFAULT_GROUP_ID,
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """The pipeline of this name, with the brokers of a connection.

    :param name: the pipeline's name.
    :param group_id: prefix of its topics and transactional ids.
    :param topic: where its records go, unless they say so themselves.
    :param options: further fields of :class:`~airflow_eos_provider.interval.pipeline.Pipeline`.
    :raises ConfigurationError: the connection, the name or an option is not usable.
    """
    from airflow_eos_provider.interval.pipeline import Pipeline

    try:
        return Pipeline(
            name=name, group_id=group_id, kafka=kafka_settings(kafka_conn_id), topic=topic, **(options or {})
        )
    except TypeError as error:
        raise ConfigurationError(f"An option of the pipeline {name} is unknown: {error}.") from error


def run_of(context: Context, pipeline: str, interval: str | None, revision: int | str) -> Run:
    """The run that a task is for."""
    from airflow_eos_provider.interval.interval import Run

    try:
        number = int(revision)
    except ValueError:
        raise ConfigurationError(f"The revision is {revision!r}.", expected="a whole number from 1") from None
    return Run(pipeline, interval_of(context, interval), number)


def require_of_schedule(dag: DAG | None, interval: Interval) -> None:
    """Refuse an interval that the DAG's schedule does not have: a function that reads one day would lose the others.

    A DAG whose timetable has no intervals takes any.
    """
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    from airflow_eos_provider.interval.interval import Interval

    if dag is None:
        return
    restriction = TimeRestriction(earliest=coerce_datetime(interval.start), latest=None, catchup=True)
    timetable = coerce_to_core_timetable(dag.timetable)
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    while info and info.data_interval and info.data_interval.start < interval.start:  # a run after its interval's end
        last = info.data_interval
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    if info is None or info.data_interval is None or info.data_interval.start == info.data_interval.end:
        return
    scheduled = Interval(info.data_interval.start, info.data_interval.end)
    if scheduled != interval:
        raise ConfigurationError(
            f"The interval {interval.name} is not one of the DAG's schedule. The schedule's first one from that start "
            f"on is {scheduled.name}.",
            expected="an interval of the schedule: a function that reads only the start's folder or partition would "
            "lose the rest of a wider interval",
            remedy="If the function selects by both bounds of any interval, give the task selects_by_bounds=True.",
        )


def interval_of(context: Context, given: str | None) -> Interval:
    """The interval that a task is for."""
    from airflow_eos_provider.interval.interval import Interval

    if given:
        start_text, _, end_text = given.partition("/")
        try:
            return Interval(datetime.fromisoformat(start_text.strip()), datetime.fromisoformat(end_text.strip()))
        except ValueError:
            raise ConfigurationError(
                f"{given!r} is not an interval.",
                expected="start/end in ISO 8601 with offsets, as in 2013-01-01T05:00:00Z/2013-01-02T05:00:00Z",
            ) from None
    dag_run = context["dag_run"]
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if start is None or end is None:
        raise ConfigurationError(
            f"The run {dag_run.run_id} has no data interval: it was triggered manually or by an asset.",
            remedy="Trigger it with a logical date, use a backfill, or give the task an interval: "
            'interval="{{ params.interval }}" (start/end in ISO 8601 with offsets).',
        )
    return Interval(start, end)
