"""A retry goes on only if its input has the rows that are committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.input_check import (
    InputChangedError,
    require_one_evaluation,
    require_same_rows,
)
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN, tally_partition
from airflow_eos_provider.interval.topics.ledger import LedgerState, SliceRecord, slice_record
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

RUN = Run.parse("p@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
PLAN = RunPlan(RUN, [{}] * 4)
PIPELINE = Pipeline("p", "g", KafkaSettings.of("127.0.0.1:1"), topic="t")
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def figures(*values: str | None, **columns: Any) -> SliceFigures:
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string()), **columns})
    return Tally(PIPELINE, RUN).take([batch])


def stage(committed: Mapping[int, SliceFigures]) -> Stage:
    return Stage(RUN, 7, PLAN.hash, PLAN.slices, ((3,),), {0: 0}, committed)


A, B = figures("a", "b"), figures("c")


def test_the_same_rows_in_another_order_pass() -> None:
    begun = stage({0: A, 1: B, 2: SliceFigures()})
    found = {0: figures("b") + figures("a"), 1: B, 3: figures("not committed yet")}

    assert require_same_rows(begun, found) == replace(begun, compared=True)


@pytest.mark.parametrize(
    ("found", "slices"),
    [
        pytest.param({0: figures("a"), 1: B}, [0], id="a row has vanished, or moved to an uncommitted slice"),
        pytest.param({0: A, 1: figures("c", "new")}, [1], id="a row is new"),
        pytest.param({0: figures("a"), 1: figures("c", "b")}, [0, 1], id="a row has moved"),
        pytest.param({0: A}, [1], id="a slice has no rows any more"),
        pytest.param({0: A, 1: B, 2: figures("x")}, [2], id="a slice that was empty has rows"),
        pytest.param({0: A, 1: figures("C")}, [1], id="a row has changed"),
        pytest.param({0: figures("a", "a"), 1: B}, [0], id="one row twice in place of another"),
        pytest.param({0: A, 1: figures(None)}, [1], id="a value is null"),
    ],
)
def test_any_other_input_is_refused_with_the_slice_and_both_figures(
    found: dict[int, SliceFigures], slices: list[int]
) -> None:
    committed = {0: A, 1: B, 2: SliceFigures()}

    with pytest.raises(InputChangedError) as refused:
        require_same_rows(stage(committed), found)

    for number in slices:
        there, now = committed[number], found.get(number, SliceFigures())
        assert f"slice {number} is committed with {there}; the input now has {now}" in str(refused.value)
    assert refused.value.exit_code == 3


def test_slices_of_two_evaluations_are_refused_before_the_run_is_complete() -> None:
    committed = {0: A, 1: B, 2: SliceFigures()}
    require_one_evaluation(RUN, committed, {0: A, 1: B})

    with pytest.raises(
        InputChangedError, match=r"(?s)within this attempt.*slice 1 is committed.*the run is not complete"
    ):
        require_one_evaluation(RUN, committed, {0: A, 1: A})


def test_of_many_slices_the_first_are_shown_and_the_others_numbered() -> None:
    with pytest.raises(InputChangedError, match=r"In all 30 slices differ: 0, 1, .*19, …") as refused:
        require_same_rows(stage(dict.fromkeys(range(30), A)), {})
    assert str(refused.value).count("is committed with") == 3


def test_a_stage_that_was_not_compared_is_not_written() -> None:
    with pytest.raises(EosError, match="was not compared"):
        Task(PIPELINE, stage({0: A}), 0)
    Task(PIPELINE, replace(stage({0: A}), compared=True), 0)
    Task(PIPELINE, stage({}), 0)  # the first attempt pays nothing


def test_a_stage_keeps_the_figures_on_its_way_to_the_tasks() -> None:
    begun = replace(stage({0: A, 2: SliceFigures()}), compared=True)

    assert Stage.from_dict(json.loads(json.dumps(begun.to_dict()))) == begun


def test_partition_and_time_count_where_the_rows_name_them() -> None:
    named = [
        figures("a"),
        figures("a", partition=pa.array([0])),
        figures("a", partition=pa.array([1])),
        figures("a", timestamp=pa.array([NOON])),
        figures("a", partition=pa.array([1]), timestamp=pa.array([NOON])),
    ]

    assert len({f.placed for f in named}) == len(named)
    assert len({f.digest for f in named}) == 1  # what `complete` says can be compared with a drained topic
    assert figures("a", partition=pa.array([None], pa.int32())) == figures("a")


def test_the_ledger_says_where_rows_were_placed_only_if_they_said_it_themselves() -> None:
    for found in (figures("a"), figures("a", partition=pa.array([1]))):
        record = SliceRecord(PLAN.hash, found.records, found.digest, placed=found.placed)
        key, value = slice_record(RUN, 0, record)
        ledger = LedgerState("p")
        ledger.apply([LogRecord("l", 0, 0, 0, key, value)])

        assert ledger.done(RUN, [0]) == {0: record}
        assert SliceFigures.of(ledger.done(RUN, [0])[0]) == found
        assert (b"placed" in value) == (found != figures("a"))


def test_a_partition_tells_the_figures_of_each_slice_however_its_rows_stand() -> None:
    values, numbers = [f"row {n}" for n in range(100)], [n * 7 % 3 for n in range(100)]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(values[at : at + 30]), pa.array(numbers[at : at + 30], pa.int32())], names=["value", SLICE_COLUMN]
        )
        for at in range(0, 100, 30)
    ]

    (reported,) = tally_partition(PIPELINE.to_dict(), RUN.name, batches)

    found = {number: SliceFigures(*part) for number, part in map(json.loads, reported.column(0).to_pylist())}
    assert found == {s: figures(*(v for v, n in zip(values, numbers, strict=True) if n == s)) for s in range(3)}
