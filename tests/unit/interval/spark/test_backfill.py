"""Which intervals are written together; that they are: tests/integration/test_spark_connect.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError
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
    assert list(map(backfill._whole, found)) == runs


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"together": 0}, "0 intervals are to be written together"),
        ({"together": 2, "revision": 2}, "Revision 2 of intervals is to be written together"),
        ({"together": 2, "allow_before_end": True}, "written together before their end"),
        ({"at_once": 0}, "0 intervals are to be written at once"),
    ],
    ids=lambda case: ", ".join(case) if isinstance(case, dict) else "",
)
def test_what_cannot_be_written_together_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        backfill.write_intervals(pytest.fail, PIPELINE, HOURS, spark=None, **wrong)  # type: ignore[arg-type]
