"""The sensor waits for ``complete``, in a worker or in the triggerer, and the trigger only reads."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor
from airflow_eos_provider.triggers import interval_complete
from airflow_eos_provider.triggers.interval_complete import IntervalCompleteTrigger

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
RUN = Run("flights.daily", Interval.parse(DAY))
COMPLETE = Completed(RUN, 842, "ab" * 16, 4, True, 0.0)


class Ledger:
    """Stands in for the ledger, which needs a broker: incomplete for so many looks, or an error."""

    def __init__(self, looks: int = 0, error: Exception | None = None) -> None:
        self.looks = looks
        self.error = error
        self.pipelines: list[Any] = []

    def __call__(self, pipeline: Any, run: Run) -> Completed | None:
        self.pipelines.append(pipeline)
        self.looks -= 1
        if self.looks >= 0:
            if self.error:
                raise self.error
            return None
        return COMPLETE


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
        "run": RUN.name,
        "pipeline": {"name": "flights.daily"},
        "poke_interval": 0.01,
        "deadline": time.time() + 600,
    }
    return IntervalCompleteTrigger(**{**arguments, **kwargs})


def event_of(waiting: IntervalCompleteTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        return (await asyncio.wait_for(anext(waiting.run()), 120)).payload

    return asyncio.run(first())


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
    assert stored["run"] == RUN.name
    assert stored["deadline"] == run_context["ti"].start_date.timestamp() + 600
    assert waiting.resume(run_context, {"status": "complete", **COMPLETE.to_dict()}) == COMPLETE.to_dict()


def test_a_timeout_in_the_triggerer_is_a_timeout_of_the_sensor(run_context: dict[str, Any]) -> None:
    with pytest.raises(AirflowSensorTimeout, match="was not complete within"):
        sensor(deferrable=True).resume(run_context, {"status": "timeout"})


def test_an_error_in_the_triggerer_fails_the_sensor_for_good(run_context: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="no such connection"):
        sensor(deferrable=True).resume(run_context, {"status": "error", "reason": "no such connection"})


def test_a_run_without_an_interval_is_refused(context: dict[str, Any]) -> None:
    context["dag_run"] = SimpleNamespace(run_id="manual", data_interval_start=None, data_interval_end=None)
    with pytest.raises(AirflowFailException, match="has no data interval"):
        sensor(deferrable=False).execute(context)


def test_the_trigger_can_be_rebuilt_from_what_it_stores() -> None:
    path, stored = trigger().serialize()
    module, _, name = path.rpartition(".")
    assert getattr(interval_complete, name) is IntervalCompleteTrigger
    assert module == interval_complete.__name__
    assert IntervalCompleteTrigger(**stored).serialize() == (path, stored)


def test_the_trigger_waits_until_the_interval_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = use(monkeypatch, Ledger(looks=3))
    assert event_of(trigger()) == {"status": "complete", **COMPLETE.to_dict()}
    assert len(ledger.pipelines) == 4
    assert ledger.pipelines[0].kafka.bootstrap_servers == "broker:9092"


def test_the_trigger_outlives_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Ledger(looks=2, error=UnreachableError("away")))
    assert event_of(trigger())["status"] == "complete"


def test_the_trigger_does_not_wait_for_what_only_a_person_can_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Ledger(looks=9, error=ConfigurationError("refused")))
    assert event_of(trigger()) == {"status": "error", "reason": "refused"}


def test_the_trigger_tells_when_its_deadline_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Ledger(looks=10**6))
    assert event_of(trigger(deadline=time.time() + 0.1)) == {"status": "timeout"}


def test_a_slow_broker_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, released = threading.Event(), threading.Event()

    def slow(pipeline: Any, run: Run) -> Completed:
        asked.set()
        assert released.wait(60), "nothing else runs beside it"
        return COMPLETE

    monkeypatch.setattr("airflow_eos_provider.interval.verify.completion", slow)

    async def beside() -> Any:
        waiting = asyncio.ensure_future(anext(trigger().run()))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        released.set()  # by another task of the same event loop, in the midst of the question
        return (await waiting).payload

    assert asyncio.run(asyncio.wait_for(beside(), 120))["status"] == "complete"
