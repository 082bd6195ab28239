"""Which interval runs can be given up, decided from what is on record."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.intervals.change import ABANDON, AbandonRequest
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.interval import verify
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.verify import RunStatus
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

RUN = Run.parse("orders@2026-01-01T00:00:00Z/2026-01-02T00:00:00Z")
RUNNING = RunStatus(RUN, False, 4, generation=17, plan_hash="p" * 32)


def plan(monkeypatch: pytest.MonkeyPatch, found: RunStatus | None, group: str = "etl") -> Plan:
    asked: list[Any] = []

    def status(pipeline: Any, run: Run) -> RunStatus | None:
        asked.append((pipeline.name, pipeline.group_id, run))
        return found

    monkeypatch.setattr(verify, "status", status)
    session: Any = SimpleNamespace(cluster=SimpleNamespace(kafka=KafkaSettings.of("broker:9092")))
    made = ABANDON.plan(session, AbandonRequest(RUN.name, group))
    assert asked == [("orders", group, RUN)]
    return made


def test_a_run_that_was_begun_anew_or_is_of_another_group_is_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan(monkeypatch, RUNNING)
    assert first == plan(monkeypatch, RUNNING)
    others = [plan(monkeypatch, replace(RUNNING, **one)) for one in ({"generation": 18}, {"plan_hash": "q" * 32})]
    for other in (*others, plan(monkeypatch, RUNNING, "other")):
        assert other.hash != first.hash


@pytest.mark.parametrize(
    ("found", "error", "why"),
    [
        (None, ConfigurationError, "on record in the group etl"),
        (replace(RUNNING, done=(1,)), RefusedError, "has 1 of 4 slices committed"),
        (replace(RUNNING, complete=True), RefusedError, "is complete"),
    ],
)
def test_a_run_that_cannot_be_given_up_is_not_planned(
    monkeypatch: pytest.MonkeyPatch, found: RunStatus | None, error: type[EosError], why: str
) -> None:
    with pytest.raises(error, match=why):
        plan(monkeypatch, found)
