"""The sensor waits for ``complete``. What all sensors and triggers share is in test_connect_transactions.py."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor
from airflow_eos_provider.triggers.interval_complete import IntervalCompleteTrigger
from tests.unit.airflow.conftest import event_of

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
RUN = Run("flights.daily", Interval.parse(DAY))
COMPLETE = Completed(RUN, 842, "ab" * 16, 4, True, 0.0)


class Ledger:
    """Stands in for the ledger, which needs a broker: incomplete for so many looks."""

    def __init__(self, looks: int = 0) -> None:
        self.looks = looks
        self.pipelines: list[Any] = []

    def __call__(self, pipeline: Any, run: Run) -> Completed | None:
        self.pipelines.append(pipeline)
        self.looks -= 1
        return None if self.looks >= 0 else COMPLETE


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "broker:9092", "sasl.password": "s3cret-pw"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))


@pytest.fixture
def run_context(context: dict[str, Any]) -> dict[str, Any]:
    context["dag_run"].data_interval_start = datetime(2013, 1, 1, 5, tzinfo=UTC)
    context["dag_run"].data_interval_end = datetime(2013, 1, 2, 5, tzinfo=UTC)
    context["ti"].start_date = datetime.now(UTC)
    return context


def use(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> Ledger:
    monkeypatch.setattr("airflow_eos_provider.interval.verify.completion", ledger)
    return ledger


def sensor(**kwargs: Any) -> IntervalCompleteSensor:
    return IntervalCompleteSensor(task_id="wait", pipeline="flights.daily", poke_interval=0.01, **kwargs)


def trigger(**kwargs: Any) -> IntervalCompleteTrigger:
    arguments = {
        "run_name": RUN.name,
        "pipeline": {"name": "flights.daily"},
        "poke_interval": 0.01,
        "deadline": time.time() + 600,
    }
    return IntervalCompleteTrigger(**{**arguments, **kwargs})


def test_the_sensor_pokes_until_the_interval_is_complete_and_returns_what_the_ledger_says(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any]
) -> None:
    ledger = use(monkeypatch, Ledger(looks=2))
    assert sensor(deferrable=False).execute(run_context) == COMPLETE.to_dict()
    assert len(ledger.pipelines) == 3


def test_a_complete_interval_needs_no_triggerer(monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any]) -> None:
    use(monkeypatch, Ledger())
    assert sensor(deferrable=True).execute(run_context) == COMPLETE.to_dict()


def test_the_deferred_sensor_stores_names_and_no_secrets_and_one_deadline_for_all_deferrals(
    monkeypatch: pytest.MonkeyPatch, run_context: dict[str, Any]
) -> None:
    use(monkeypatch, Ledger(looks=1))
    waiting = sensor(deferrable=True, timeout=600)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(run_context)
    _, stored = deferred.value.trigger.serialize()
    assert "s3cret-pw" not in json.dumps(stored)
    assert stored["run_name"] == RUN.name
    assert stored["deadline"] == run_context["ti"].start_date.timestamp() + 600
    assert waiting.resume(run_context, {"status": "complete", **COMPLETE.to_dict()}) == COMPLETE.to_dict()


def test_a_timeout_in_the_triggerer_is_a_timeout_of_the_sensor(run_context: dict[str, Any]) -> None:
    with pytest.raises(AirflowSensorTimeout, match="was not complete within"):
        sensor(deferrable=True).resume(run_context, {"status": "timeout"})


def test_a_run_without_an_interval_is_refused(context: dict[str, Any]) -> None:
    context["dag_run"] = SimpleNamespace(run_id="manual", data_interval_start=None, data_interval_end=None)
    with pytest.raises(AirflowFailException, match="has no data interval"):
        sensor(deferrable=False).execute(context)


def test_the_trigger_waits_until_the_interval_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = use(monkeypatch, Ledger(looks=3))
    assert event_of(trigger()) == {"status": "complete", **COMPLETE.to_dict()}
    assert len(ledger.pipelines) == 4
    assert ledger.pipelines[0].kafka.bootstrap_servers == "broker:9092"
