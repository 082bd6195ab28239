"""What a run moved is taken from the ledger's records; how long it took, from them, its tasks and its coordinator."""

from __future__ import annotations

import pytest

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.protocol import summary as module
from airflow_eos_provider.interval.protocol.summary import StepClock, by_task, summarise
from airflow_eos_provider.interval.topics.ledger import NO_DIGEST, SliceMeasures, SliceRecord

RUN = Run.parse("p@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")


def record(records: int, size: int, *, task: int = 0, attempt: int = 0, read: float = 0.0) -> SliceRecord:
    return SliceRecord("plan", records, NO_DIGEST, measures=SliceMeasures(size, task, attempt, {"read": read}))


def result(number: int, commit: float) -> SliceResult:
    return SliceResult(number, 0, 0, NO_DIGEST, 1.0, stage_seconds={"read": 9.0, "commit": commit})


DONE = {
    0: record(10, 100, task=0, read=1.0),
    1: record(20, 300, task=0, attempt=2, read=0.5),
    2: record(30, 200, task=1, attempt=1, read=0.25),
}


def test_sizes_and_seconds_of_all_slices_add_up() -> None:
    found = summarise(DONE, fenced=3, written=[result(0, 0.5), result(2, 0.25)], seconds={"fence": 0.125})

    assert (found.transactions, found.bytes) == (3, 600)
    assert found.transaction_records == (10, 20, 30)
    assert found.transaction_bytes == (100, 200, 300)
    assert found.attempts_fenced == 3 + 2 + 1, "each attempt of a task before its last was fenced by the next one"
    assert found.seconds == {"read": 1.75, "commit": 0.75, "fence": 0.125}


def test_a_run_without_slices_has_no_sizes() -> None:
    found = summarise({}, fenced=0, written=(), seconds={})
    assert (found.transactions, found.bytes, found.transaction_bytes, found.attempts_fenced) == (0, 0, (0, 0, 0), 0)
    assert found.lines()


def test_each_task_of_the_stage_has_its_own() -> None:
    stage = Stage(RUN, 0, "plan", ({},) * 3, ((1,), (2,), ()), {0: 0})
    first, second = by_task(stage, DONE, [result(1, 0.5)])

    assert (first.task, first.attempt, first.slices, first.records, first.bytes) == (0, 2, 1, 20, 300)
    assert first.seconds == {"read": 9.0, "commit": 0.5}, "what the task reports is newer than the ledger's"
    assert (second.task, second.attempt, second.bytes, second.seconds) == (1, 1, 200, {"read": 0.25})


def test_a_coordinators_steps_are_timed_by_what_they_belong_to(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(module.time, "monotonic", tick)
    seen: list[str] = []
    clock = StepClock(seen.append)
    steps = ["init", "admit plan", "fence", "read ledger", "run stage", "fence own ids", "read ledger at the end"]
    for step in steps:
        clock(step)
    clock.turn("complete")

    assert seen == steps
    assert clock.seconds == {"begin": 3.0, "fence": 2.0, "stage": 1.0, "read_back": 1.0}
