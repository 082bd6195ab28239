"""Several drivers at once: of one run, of intervals that overlap, of intervals that do not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_eos_provider.errors import FencedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.kafka.write.producer import TransactionalProducer

pytestmark = pytest.mark.side_by_side

Days = Callable[..., Run]


def _drive_all(story: Any, drivers: list[Any]) -> list[dict[str, Any]]:
    def drive(driver: Any) -> dict[str, Any]:
        event = driver.wait_for("stage", "completed", "error")
        if "stage" in event:
            stage = story.stage_from(event)
            for task in [story.task(stage, number) for number in stage.tasks]:
                task.end()  # fenced by the other driver's, perhaps
            driver.tell("the stage has ended")
            event = driver.end()
        return event  # type: ignore[no-any-return]

    with ThreadPoolExecutor(len(drivers)) as pool:
        return list(pool.map(drive, drivers))


def test_two_drivers_of_one_run_at_once_write_it_once(story: Any) -> None:
    ends = _drive_all(story, [story.driver(tasks=2), story.driver(tasks=3)])

    if not any("completed" in end for end in ends):  # each came in the other's way once; the later retry does it
        story.complete()
    refusals = ("FencedError", "IncompleteError", "UndecidedError")
    assert all("completed" in end or end["error"] in refusals for end in ends), ends
    story.require_exactly_once()


def test_a_second_driver_takes_over_in_the_middle_of_the_first_ones_stage(story: Any) -> None:
    first = story.driver()
    stage = story.stage_of(first)
    busy = story.task(stage, 0, stops=["commit"])
    busy.wait_until_stopped()

    completed = story.complete(tasks=3)
    busy.go_on()
    assert busy.end()["error"] == "FencedError"
    first.tell("the stage has ended")

    # It finds its interval complete, and takes the other driver's word for it.
    end = first.end()
    assert end.get("completed", {}).get("already") is True, end
    assert end["completed"]["digest"] == completed["digest"]
    story.require_exactly_once()


def test_a_driver_whose_stage_ends_while_its_successor_writes_leaves_it_alone(story: Any) -> None:
    first = story.driver(tasks=1)
    story.stage_of(first)
    second = story.driver(tasks=1)
    stage = story.stage_of(second)
    busy = story.task(stage, stops=["commit"])
    busy.wait_until_stopped()
    first.tell("the stage has ended")  # with none of its slices written

    end = first.end()

    assert end.get("error") == "FencedError", end
    assert "follow that one" in end["text"]
    busy.go_on()
    assert "written" in busy.end(), "the newer driver's task is not fenced"
    second.tell("the stage has ended")
    assert "completed" in second.end()
    story.require_exactly_once()


@pytest.mark.parametrize("how", ["together", "one after the other", "when the other is complete"])
def test_of_two_overlapping_intervals_exactly_one_is_admitted(story: Any, days: Days, how: str) -> None:
    runs = [days(1, 2), days(2, 2)]
    first = story.driver(run=runs[0])
    if how == "one after the other":
        stage = story.stage_of(first)
    if how == "when the other is complete":
        assert "completed" in story.drive(first)
    second = story.driver(run=runs[1])
    ends = [
        driver.wait_for("stage", "completed", "error")
        for driver in ([second] if how != "together" else [first, second])
    ]

    refused = [end for end in ends if end.get("error") == "OverlapError"]
    assert len(refused) == 1, ends
    if how == "one after the other":
        story.write(stage)
        first.tell("the stage has ended")
        assert "completed" in first.end()
    if how == "together":
        winner = first if "stage" in ends[0] else second
        story.write(story.stage_from(next(end for end in ends if "stage" in end)))
        winner.tell("the stage has ended")
        assert "completed" in winner.end()
        story.require_exactly_once(runs[0] if winner is first else runs[1])
    else:
        story.require_exactly_once(runs[0])


def test_an_interval_that_is_completed_between_a_planners_two_reads_is_seen(story: Any, days: Days) -> None:
    """A finishing run removes its plan from the control topic and leaves ``complete`` in the ledger, in this order."""
    first = story.driver(run=days(1, 2))
    stage = story.stage_of(first)
    second = story.driver(run=days(2, 2), stops=["planner read control", "planner read ledger"])
    second.wait_until_stopped()
    second.go_on()
    second.wait_until_stopped()  # between its two reads, whichever of them is the first

    story.write(stage)
    first.tell("the stage has ended")
    assert "completed" in first.end()
    second.go_on()

    event = second.wait_for("stage", "error")
    assert event.get("error") == "OverlapError", event
    story.require_exactly_once(days(1, 2))


@pytest.mark.parametrize("when", ["before", "between a planner's two reads"])
def test_an_interval_within_one_that_has_been_completed_writes_nothing(story: Any, days: Days, when: str) -> None:
    whole = story.driver(run=days(1, 3))
    stage = story.stage_of(whole)
    stops = [] if when == "before" else ["planner read control", "planner read ledger"]
    part = story.driver(run=days(2), stops=stops) if stops else None
    if part is not None:
        part.wait_until_stopped()
        part.go_on()
        part.wait_until_stopped()

    story.write(stage)
    whole.tell("the stage has ended")
    assert "completed" in whole.end()
    if part is None:
        part = story.driver(run=days(2))
    else:
        part.go_on()

    event = part.wait_for("stage", "completed", "error")
    assert event.get("completed", {}).get("already") is True, event
    assert event["completed"]["run"] == days(1, 3).name
    story.require_exactly_once(days(1, 3))


def test_an_interval_within_one_that_is_being_written_is_refused_and_written_once_that_is_given_up(
    story: Any, days: Days
) -> None:
    """A plan says nothing of what is written: a part that counted as complete with it would never be."""
    whole = story.driver(run=days(1, 3))
    story.stage_of(whole)

    assert story.driver(run=days(2)).wait_for("stage", "completed", "error").get("error") == "WholeUnderWayError"

    whole.kill()
    assert "abandoned" in story.abandoner(run=days(1, 3)).end()
    assert "completed" in story.drive(story.driver(run=days(2)))
    story.require_exactly_once(days(2))


def test_four_intervals_at_once_and_backwards_do_not_fence_one_another(story: Any, days: Days) -> None:
    runs = [days(day) for day in (4, 3, 2, 1)]

    ends = _drive_all(story, [story.driver(run=run) for run in runs])

    assert all("completed" in end for end in ends), ends
    story.require_exactly_once(*runs)


def test_a_retry_with_other_parallelism_writes_what_is_left(story: Any) -> None:
    driver = story.driver(tasks=2)
    stage = story.stage_of(driver)
    assert "written" in story.task(stage, 1).end()
    driver.kill()

    again = story.driver(tasks=4, lines=40, slices=9)  # the plan on record has four slices, and stays
    new_stage = story.stage_of(again)
    assert len(new_stage["slices"]) == len(stage["slices"])
    assert sum(map(len, new_stage["assignment"])) == len(stage["assignment"][0])
    story.write(new_stage)
    again.tell("the stage has ended")

    assert "completed" in again.end()
    story.require_exactly_once()


def test_a_finished_run_is_a_no_op_that_leaves_nothing(story: Any) -> None:
    first = story.complete()
    again = story.driver()

    completed = again.end()["completed"]
    # What it has not done itself, no task of its own tells: which tasks there were, and what they have read.
    of_its_own = {"already": True, "seconds": completed["seconds"], "tasks": [], "inputs": {}}
    assert completed == {**first, **of_its_own}
    assert again.steps() == ["init", "read control", "read stable ledger"]
    story.require_exactly_once()


def test_an_empty_interval_is_completed_as_empty(story: Any) -> None:
    story.source(story.run, lines=0)

    completed = story.complete()

    assert (completed["records"], completed["slices"]) == (0, 0)
    story.require_exactly_once()


def test_a_late_duplicate_before_its_last_read_writes_nothing(story: Any) -> None:
    """Whatever the order of its reads: the run is completed before the last of them."""
    driver = story.driver(tasks=1, slices=1, stops=["read ledger at the end"])
    stage = story.stage_of(driver)
    late = story.task(stage, stops=["init", "read slices", "read control again", "read complete"])
    late.wait_until_stopped()
    story.write(stage)
    driver.tell("the stage has ended")
    driver.wait_until_stopped()  # the run's own ids are fenced, and the late one inits after that
    for _ in range(3):
        late.go_on()
        late.wait_until_stopped()

    driver.go_on()
    assert "completed" in driver.end()
    late.go_on()

    assert late.end().get("error") == "FencedError"
    story.require_exactly_once()


def test_a_task_that_is_fenced_at_its_last_commit_does_not_pass_for_written(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=["commit"])
    first.wait_until_stopped()
    assert "written" in story.task(stage).end()

    first.go_on()

    assert first.end().get("error") == "FencedError"
    driver.tell("the stage has ended")
    assert "completed" in driver.end()
    story.require_exactly_once()


def test_a_transaction_that_no_task_count_tells_of_is_fenced(story: Any) -> None:
    pipeline = story.pipeline
    driver = story.driver(tasks=1)
    story.stage_of(driver)
    driver.kill()
    unknown = TransactionalProducer(pipeline.kafka, pipeline.transactional_id(story.run, 7), timeout_ms=300_000)
    unknown.init()
    unknown.begin()
    unknown.produce(pipeline.ledger_topic, b'["unknown",null]', b"{}", partition=0)
    unknown.flush()

    story.complete()  # which reads the ledger to its uncommitted end

    with pytest.raises(FencedError):
        unknown.commit()
    story.require_exactly_once()


def test_whoever_holds_an_id_of_the_run_is_fenced_before_complete(story: Any) -> None:
    pipeline = story.pipeline
    driver = story.driver(tasks=1)
    story.write(story.stage_of(driver))
    holder = TransactionalProducer(pipeline.kafka, pipeline.transactional_id(story.run, 0), timeout_ms=300_000)
    holder.init()

    driver.tell("the stage has ended")
    assert "completed" in driver.end()

    holder.begin()
    holder.produce(pipeline.ledger_topic, b'["late",null]', b"{}", partition=0)
    with pytest.raises(FencedError):
        holder.commit()
    story.require_exactly_once()


def test_slices_of_another_plan_are_not_completed(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    story.write(story.stage_from({"stage": {**stage, "plan_hash": "another"}}))
    driver.tell("the stage has ended")

    end = driver.end()

    assert "under another plan" in end.get("text", ""), end
    assert story.completes() == []


def test_a_run_with_missing_slices_is_not_complete_and_says_which(story: Any) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    assert "written" in story.task(stage, 0).end()
    driver.tell("the stage has ended")

    end = driver.end()

    assert end["error"] == "IncompleteError"
    assert "1, 3" in end["text"]
    assert story.completes() == []
    story.complete()
    story.require_exactly_once()


def test_a_plan_without_a_committed_slice_can_be_given_up(story: Any, days: Days) -> None:
    driver = story.driver(run=days(1))
    story.stage_of(driver)
    driver.kill()

    assert "abandoned" in story.abandoner().end()

    assert story.control().runs == {}
    overlapping = days(1, 2)
    assert "completed" in story.drive(story.driver(run=overlapping))
    story.require_exactly_once(overlapping)


@pytest.mark.parametrize("state", ["a slice is committed", "the run is complete", "nothing is on record"])
def test_giving_up_is_refused_where_it_would_leave_records(story: Any, state: str) -> None:
    if state == "the run is complete":
        story.complete()
    elif state == "a slice is committed":
        driver = story.driver()
        assert "written" in story.task(story.stage_of(driver), 0).end()
        driver.kill()

    assert story.abandoner().end()["error"] == "RefusedError"

    story.complete()
    story.require_exactly_once()


def test_giving_up_is_refused_when_a_slice_is_committed_after_the_first_look(story: Any) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    abandoner = story.abandoner(stops=["write generation"])
    abandoner.wait_until_stopped()  # it has found no slice
    assert "written" in story.task(stage, 0).end()

    abandoner.go_on()

    assert abandoner.end().get("error") == "RefusedError"
    driver.kill()
    story.complete()
    story.require_exactly_once()


def test_giving_up_fences_a_driver_that_is_still_at_work(story: Any) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    assert "abandoned" in story.abandoner().end()

    assert story.task(stage, 0).end()["error"] == "FencedError"
    driver.tell("the stage has ended")

    assert "error" in driver.end()
    assert story.drained() == {}
    story.complete()
    story.require_exactly_once()
