from __future__ import annotations

import pytest

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.protocol.admission import OverlapError, WholeUnderWayError, admit
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import ControlState, generation_records, plan_record
from airflow_eos_provider.interval.topics.ledger import (
    CompleteRecord,
    LedgerState,
    SliceRecord,
    complete_record,
    slice_record,
)
from airflow_eos_provider.kafka.read.reader import LogRecord


def run_of(first: int, last: int, pipeline: str = "p", revision: int = 1) -> Run:
    return Run(pipeline, Interval.parse(f"2013-01-0{first}T00:00:00Z/2013-01-0{last}T00:00:00Z"), revision)


RUN = run_of(2, 3)


def control(*plans: Run) -> ControlState:
    state = ControlState()
    records = [record for run in plans for record in (plan_record(RunPlan(run, [{}])), *generation_records(run, []))]
    state.apply(LogRecord("c", 0, n, 0, *record) for n, record in enumerate(records))
    return state


def ledger(*complete: Run, pipeline: str = "p", ended: bool = False) -> LedgerState:
    state = LedgerState(pipeline)
    records = [complete_record(CompleteRecord(run, 1, "1", 1, ended=ended)) for run in complete]
    state.apply(LogRecord("l", 0, n, 0, *record) for n, record in enumerate(records))
    return state


def test_a_plan_is_written_where_nothing_is_in_its_way() -> None:
    assert admit(RUN, control(), ledger()) is None


def test_neighbours_and_other_pipelines_are_not_in_its_way() -> None:
    planned = control(run_of(1, 2), run_of(2, 3, pipeline="other"))

    assert admit(RUN, planned, ledger(run_of(3, 4))) is None


def test_its_own_plan_is_adopted() -> None:
    assert admit(RUN, control(RUN), ledger()) == RunPlan(RUN, [{}])


def test_its_own_complete_ends_it_also_while_its_plan_is_still_to_be_seen() -> None:
    complete = admit(RUN, control(RUN), ledger(RUN))

    assert isinstance(complete, CompleteRecord)
    assert complete.run == RUN


@pytest.mark.parametrize("other", [run_of(1, 3), run_of(3, 5)])
def test_an_overlapping_interval_is_refused_whether_planned_or_complete(other: Run) -> None:
    asked = run_of(2, 4)
    with pytest.raises(OverlapError, match="is being written") as planned:
        admit(asked, control(other), ledger())
    with pytest.raises(OverlapError, match="is complete"):
        admit(asked, control(), ledger(other))

    assert other.name in str(planned.value)
    assert "abandon" in str(planned.value)


@pytest.mark.parametrize("asked", [run_of(1, 4), run_of(1, 2)], ids=["itself", "narrower"])
def test_slices_without_a_plan_overlap(asked: Run) -> None:
    begun = LedgerState("p")
    begun.apply([LogRecord("l", 0, 0, 0, *slice_record(run_of(1, 4), 0, SliceRecord("plan", 1, "1")))])

    with pytest.raises(OverlapError, match="has no plan of that run"):
        admit(asked, control(), begun)

    assert admit(run_of(4, 5), control(), begun) is None
    assert admit(run_of(1, 4), control(run_of(1, 4)), begun) is not None


def test_a_second_revision_is_written_when_the_first_is_complete() -> None:
    assert admit(run_of(2, 3, revision=2), control(), ledger(RUN)) is None


def test_a_second_revision_is_refused_while_the_first_is_being_written() -> None:
    with pytest.raises(RefusedError):
        admit(run_of(2, 3, revision=2), control(RUN), ledger())


@pytest.mark.parametrize(("complete", "asked"), [([], 2), ([1], 3), ([1, 2], 4)])
def test_revisions_come_in_their_order(complete: list[int], asked: int) -> None:
    finished = ledger(*(run_of(2, 3, revision=n) for n in complete))

    with pytest.raises(RefusedError, match=f"revision {len(complete) + 1}"):
        admit(run_of(2, 3, revision=asked), control(), finished)


def test_a_revision_that_is_complete_stays_a_no_op_when_later_ones_are() -> None:
    second = run_of(2, 3, revision=2)

    assert isinstance(admit(RUN, control(), ledger(RUN, second)), CompleteRecord)


def test_a_part_of_a_complete_interval_is_complete_with_it() -> None:
    found = admit(RUN, control(), ledger(run_of(1, 4), ended=True))

    assert isinstance(found, CompleteRecord)
    assert found.run == run_of(1, 4)


@pytest.mark.parametrize("whole", [run_of(1, 4), run_of(1, 3), run_of(2, 4)])
def test_a_part_of_an_interval_that_is_being_written_waits_for_its_end(whole: Run) -> None:
    with pytest.raises(WholeUnderWayError, match="is being written") as waits:
        admit(RUN, control(whole), ledger())

    assert whole.name in str(waits.value)
    assert not isinstance(waits.value, RefusedError), "Airflow would not try it again"


def test_an_interval_that_has_not_ended_is_refused_to_its_parts() -> None:
    with pytest.raises(OverlapError, match="is complete"):
        admit(RUN, control(), ledger(run_of(1, 4)))


def test_a_second_revision_of_a_part_is_refused_while_the_whole_is_being_written() -> None:
    with pytest.raises(OverlapError, match="is being written"):
        admit(run_of(2, 3, revision=2), control(run_of(1, 4)), ledger())


def test_a_second_revision_of_a_part_is_refused() -> None:
    with pytest.raises(OverlapError, match="is complete"):
        admit(run_of(2, 3, revision=2), control(), ledger(run_of(1, 4), ended=True))


@pytest.mark.parametrize("other", [run_of(1, 3), run_of(2, 4)])
def test_an_interval_that_a_complete_one_is_only_a_part_of_is_refused(other: Run) -> None:
    with pytest.raises(OverlapError, match="is complete"):
        admit(run_of(1, 5), control(), ledger(other, ended=True))
