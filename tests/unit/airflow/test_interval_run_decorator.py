"""``@task.interval_run``: the function gets session and interval, and what it returns is written."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
COMPLETE = Completed(Run("flights.daily", Interval.parse(DAY)), 842, "ab" * 16, 4, True, 0.0)


@pytest.fixture
def run_context(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    extra = {"bootstrap.servers": "broker:9092"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    context["dag_run"].data_interval_start = datetime(2013, 1, 1, 5, tzinfo=UTC)
    context["dag_run"].data_interval_end = datetime(2013, 1, 2, 5, tzinfo=UTC)
    context["outlet_events"] = OutletEventAccessors()
    return context


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for Spark and for the writer, which need a JVM and a broker; the system tests use the real ones."""
    seen = SimpleNamespace(session=SimpleNamespace(sparkContext="context"), written=[], sessions=0)

    def execute_callable(operator: Any) -> Any:
        seen.sessions += 1
        return operator.python_callable(*operator.op_args, **{**operator.op_kwargs, "spark": seen.session})

    def write_interval(frame: Any, pipeline: Any, interval: Interval, **kwargs: Any) -> Completed:
        seen.written.append((frame, pipeline.name, interval.name, kwargs))
        kwargs["report"]("slice 0 is committed")
        return COMPLETE

    module = ModuleType("airflow_eos_provider.interval.spark.write")
    module.write_interval = write_interval  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow_eos_provider.interval.spark.write", module)
    monkeypatch.setattr(
        "airflow.providers.apache.spark.operators.spark_pyspark.PySparkOperator.execute_callable", execute_callable
    )
    return seen


def use_ledger(monkeypatch: pytest.MonkeyPatch, *answers: Completed | None) -> None:
    left = list(answers)
    monkeypatch.setattr("airflow_eos_provider.interval.verify.completion", lambda *_, **__: left.pop(0))


def test_the_input_counts_from_before_the_function_is_called(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any], started: SimpleNamespace
) -> None:
    use_ledger(monkeypatch, None, COMPLETE)
    called: list[datetime] = []

    @task.interval_run(pipeline="flights.daily", selects_by_bounds=True)
    def flights(interval: Interval) -> None:
        called.append(datetime.now(UTC))

    with DAG("flights", schedule=None):
        operator = flights().operator
    operator.execute(run_context)
    ((_, _, _, how),) = started.written
    assert how["began_at"] <= called[0]
    assert (how["selects_by_bounds"], how["allow_before_end"]) == (True, False)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_run_whose_interval_has_not_ended_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any], started: SimpleNamespace, allowed: bool
) -> None:
    """Airflow makes such manual runs around a change of the clocks."""
    use_ledger(monkeypatch, None, COMPLETE)
    run_context["dag_run"].data_interval_end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    operator = decorated(allow_before_end=allowed)
    if allowed:
        operator.execute(run_context)
    else:
        with pytest.raises(AirflowFailException, match="had not ended"):
            operator.execute(run_context)
    assert started.sessions == int(allowed)


def decorated(**options: Any) -> Any:
    @task.interval_run(pipeline="flights.daily", topic="flights.daily", **options)
    def flights(spark: Any, interval: Interval, folder: str) -> tuple[Any, str, str]:
        return spark, interval.name, folder

    with DAG("flights", schedule=None):
        return flights("/data").operator


def test_the_function_gets_session_interval_and_its_own_arguments_and_its_frame_is_written(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any], started: SimpleNamespace
) -> None:
    use_ledger(monkeypatch, None, COMPLETE)
    operator = decorated(slices=3, key="line")
    summary = operator.execute(run_context)
    ((frame, pipeline, interval, how),) = started.written
    assert frame == (started.session, DAY, "/data")
    assert (pipeline, interval) == ("flights.daily", DAY)
    assert (how["slices"], how["key"], how["revision"]) == (3, "line", 1)
    assert (summary["records"], summary["already"]) == (842, False)


def test_mapped_functions_that_share_an_interval_are_refused(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any], started: SimpleNamespace
) -> None:
    @task.interval_run(pipeline="flights.daily", topic="flights.daily", interval=DAY)
    def flights(spark: Any, folder: str) -> None: ...

    with DAG("flights", schedule=None):
        mapped = flights.expand(folder=["/eu", "/us"]).operator
    use_ledger(monkeypatch, None, COMPLETE)
    run_context["ti"].map_index = 1
    with pytest.raises(AirflowFailException, match="one interval of one pipeline"):
        mapped.unmap({"op_kwargs": {"folder": "/us"}}).execute(run_context)
    assert not started.written


def test_a_complete_interval_makes_no_session(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any], started: SimpleNamespace
) -> None:
    use_ledger(monkeypatch, COMPLETE)
    summary = decorated().execute(run_context)
    assert summary["already"] is True
    assert started.sessions == 0


def test_the_task_has_the_asset_as_its_outlet() -> None:
    assert [asset.uri for asset in decorated().outlets] == ["x-eos://eos-intervals/flights.daily"]


def test_a_missing_argument_is_told_when_the_dag_is_read() -> None:
    @task.interval_run(pipeline="flights.daily")
    def flights(spark: Any, interval: Interval, folder: str) -> None: ...

    with DAG("flights", schedule=None), pytest.raises(TypeError, match="folder"):
        flights()


def test_arguments_that_have_no_name_are_refused() -> None:
    @task.interval_run(pipeline="flights.daily")
    def flights(spark: Any, *folders: str) -> None: ...

    with DAG("flights", schedule=None), pytest.raises(TypeError, match="folders"):
        flights("/data")
