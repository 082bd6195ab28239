"""Which intervals are written together; that they are: tests/integration/test_spark_connect.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import backfill
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

PIPELINE = Pipeline("hourly", "nobody", KafkaSettings.of("127.0.0.1:1"), topic="hourly")
HOURS = [Interval.parse(f"2013-01-01T0{n}:00:00Z/2013-01-01T0{n + 1}:00:00Z") for n in range(3)]
BOTH = Interval(HOURS[0].start, HOURS[1].end)


@pytest.mark.parametrize(
    ("begun", "revision", "runs"),
    [(1, 1, [BOTH, HOURS[2]]), (2, 1, HOURS), (2, 2, HOURS), (1, 2, HOURS)],
)
def test_a_run_of_neighbours_is_finished_as_it_was_begun_unless_a_revision_is_written(
    monkeypatch: pytest.MonkeyPatch, begun: int, revision: int, runs: list[Interval]
) -> None:
    state = SimpleNamespace(planned=lambda pipeline: [Run(pipeline, BOTH, begun)])
    monkeypatch.setattr(backfill, "control", lambda pipeline: state)
    found = backfill._runs(PIPELINE, HOURS, (), 1, revision)
    assert [run.whole for run in found] == runs
