"""What the logs still have of a pipeline's runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.run_history import PipelineHistory, groups_with_pipelines
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import (
    Outgoing,
    generation_records,
    plan_record,
    task_count_record,
)
from airflow_eos_provider.interval.topics.ledger import (
    CompleteRecord,
    SliceRecord,
    complete_record,
    slice_key,
    slice_record,
)
from airflow_eos_provider.kafka.read.reader import LogRecord

RUN = Run("flights", Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"))
PLAN = RunPlan(RUN, [{"file": "a"}, {"file": "b"}], {"kind": "files"})
DIGEST = f"{7:032x}"


def log(written: Iterable[Outgoing | bytes], *, start: int = 1) -> list[LogRecord]:
    """The records with an offset and a second each; a key alone is a removal."""
    numbers = count(start)
    return [
        LogRecord("t", 0, number := next(numbers), number * 1_000, one, None)
        if isinstance(one, bytes)
        else LogRecord("t", 0, number := next(numbers), number * 1_000, one.key, one.value)
        for one in written
    ]


BEGUN = [plan_record(PLAN), task_count_record(RUN, 2), *generation_records(RUN, [[0], [1]])]


def test_of_a_run_under_way_plan_attempts_and_committed_slices_are_known() -> None:
    again = generation_records(RUN, [[1]])
    past = PipelineHistory(
        "flights", log([*BEGUN, *again]), log([slice_record(RUN, 0, SliceRecord(PLAN.hash, 5, DIGEST))])
    )
    (status,) = past.statuses
    assert (status.complete, status.done, status.records, status.missing) == (False, (0,), 5, (1,))
    assert (past.began_at_ms(RUN), past.completed_at_ms(RUN), past.seconds(RUN)) == (1_000, None, None)
    assert [(each.generation, each.at_ms) for each in past.attempts(RUN)] == [(5, 5_000), (7, 7_000)]
    assert past.source_of(RUN) == ({"file": "a"}, {"file": "b"})
    assert past.task_of(RUN)[1] == 0
    assert past.slice_at_ms(RUN, 0) == 1_000


def test_of_a_complete_run_what_was_removed_is_known_while_the_log_has_it() -> None:
    control = log([*BEGUN, *(each.key for each in BEGUN)])
    slices = [slice_record(RUN, number, SliceRecord(PLAN.hash, 5, DIGEST)) for number in (0, 1)]
    done = [complete_record(CompleteRecord(RUN, 10, DIGEST, 2)), slice_key(RUN, 0), slice_key(RUN, 1)]
    past = PipelineHistory("flights", control, log([*slices, *done], start=20))
    (status,) = past.statuses
    assert (status.complete, status.records) == (True, 10)
    assert past.seconds(RUN) == 21.0
    assert {number: one.records for number, one in past.slices(RUN, 2).items()} == {0: 5, 1: 5}
    assert past.task_of(RUN) == {0: 0, 1: 1}
    assert past.plan(RUN) == PLAN


def test_of_a_compacted_log_the_state_alone_is_known() -> None:
    past = PipelineHistory("flights", [], log([complete_record(CompleteRecord(RUN, 10, DIGEST, 2))]))
    assert [status.complete for status in past.statuses] == [True]
    assert (past.seconds(RUN), past.attempts(RUN), past.plan(RUN), past.slices(RUN, 2)) == (None, (), None, {})


def test_pipelines_are_known_by_the_names_of_their_topics() -> None:
    names = ["etl-configs", "etl-a-offsets", "etl-b-c-offsets", "etl-offsets", "connect-configs", "x-offsets", "orders"]
    assert groups_with_pipelines(names) == {"etl": ["a", "b-c"]}
