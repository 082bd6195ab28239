"""Every metric of the catalogue is sent, to Airflow's own backend, and none that is not in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.observability import stats

from airflow_eos_provider import metrics
from airflow_eos_provider.metrics import METRICS, PARTS, Kind, of_interval, of_roll

RESULT: dict[str, Any] = {
    "already": False,
    "records": 60,
    "seconds": 2.5,
    "metrics": {
        "transactions": 3,
        "bytes": 600,
        "transaction_records": [10, 20, 30],
        "transaction_bytes": [100, 200, 300],
        "attempts_fenced": 1,
        "seconds": dict.fromkeys(PARTS, 1.5),
        "tasks": [],
    },
}
WORKER = {"worker": "w1", "seconds": 30.0, "task_downtime_seconds": 4.0, "predicted_seconds": 5.0}
REPORT = {"rollout_id": "r1", "to": "enabled", "workers": [WORKER, WORKER]}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any, dict[str, str]]]:
    found: list[tuple[str, str, Any, dict[str, str]]] = []
    for kind, function in ((Kind.COUNTER, "incr"), (Kind.GAUGE, "gauge"), (Kind.TIMER, "timing")):

        def take(name: str, value: Any, *, tags: dict[str, str], kind: Kind = kind) -> None:
            found.append((kind.value, name, value, tags))

        monkeypatch.setattr(stats, function, take)
    return found


def test_every_metric_of_the_catalogue_is_sent_with_its_unit(sent: list[Any]) -> None:
    of_interval(RESULT, pipeline="orders", group_id="etl")
    of_interval({"already": True}, pipeline="orders", group_id="etl")
    of_roll(REPORT, group_id="connect")
    for metric in (metrics.ROLLS_FAILED, metrics.ROLLS_PAUSED):
        metric.send(1, {"group_id": "connect", "to": "enabled"})

    assert {name for _, name, _, _ in sent} == {metric.name for metric in METRICS}
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    values = {name: value for _, name, value, _ in sent}
    assert (values["eos.interval.records"], values["eos.interval.bytes"]) == (60, 600)
    assert values["eos.interval.duration"] == 2500.0, "timers are in milliseconds"
    assert values["eos.interval.flush_time"] == 1500.0
    assert values["eos.interval.transaction_bytes_max"] == 300
    assert values["eos.roll.task_downtime"] == 4000.0
    tags = {name: tags for _, name, _, tags in sent}
    assert tags["eos.interval.records"] == {"pipeline": "orders", "group_id": "etl"}
    assert tags["eos.roll.gate_wait"] == {"group_id": "connect", "to": "enabled"}


def test_what_was_complete_before_is_not_counted_again(sent: list[Any]) -> None:
    of_interval({**RESULT, "already": True}, pipeline="orders", group_id="etl")
    assert [name for _, name, _, _ in sent] == ["eos.interval.already_complete"]


def test_a_roll_that_had_nothing_to_do_is_not_counted(sent: list[Any]) -> None:
    of_roll({"to": "enabled", "workers": []}, group_id="connect")
    assert sent == []


def test_a_run_of_a_version_that_did_not_measure_is_counted(sent: list[Any]) -> None:
    of_interval({**RESULT, "metrics": None}, pipeline="orders", group_id="etl")
    names = ["eos.interval.completed", "eos.interval.records", "eos.interval.duration"]
    assert [name for _, name, _, _ in sent] == names


def test_a_metric_that_cannot_be_sent_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(stats, "incr", refuse)
    metrics.RECORDS.send(1, {"pipeline": "orders", "group_id": "etl"})
    assert "eos.interval.records was not sent: RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


def test_each_metric_of_the_catalogue_arrives_at_a_statsd_server(datagrams: Callable[[], list[str]]) -> None:
    """Airflow's validator drops names that it does not like without an error."""
    letters = {Kind.COUNTER: "c", Kind.GAUGE: "g", Kind.TIMER: "ms"}
    for metric in METRICS:
        metric.send(2, {"pipeline": "orders", "group_id": "etl", "to": "enabled"})

    assert datagrams() == [
        f"airflow.{metric.name}:{'2000.000000' if metric.kind is Kind.TIMER else 2}|{letters[metric.kind]}"
        for metric in METRICS
    ]
