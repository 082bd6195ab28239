"""For sentences of the protocol the interleaving that breaks the promise without it; with it, none does.

The actors wait at named steps, so each interleaving is the same every time. ``mutants_table.py`` has the code without
each sentence, on which its story here fails. Numbers as V1 are the findings of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.write.producer import TransactionalProducer

pytestmark = pytest.mark.side_by_side


def test_v1_a_late_duplicate_reads_complete_last(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1, stops=["read ledger at the end"])
    stage = story.stage_of(driver)
    late = story.task(stage, stops=["init", "read complete"])
    late.wait_until_stopped()
    story.write(stage)
    driver.tell("the stage has ended")
    driver.wait_until_stopped()  # the run's own ids are fenced: whoever inits from here on is not
    late.go_on()
    late.wait_until_stopped()

    driver.go_on()
    assert "completed" in driver.end()
    late.go_on()

    assert late.end()["error"] == "FencedError"
    story.require_exactly_once()


def test_v2_the_first_look_at_the_ledger_does_not_wait_for_a_dead_task(story: Any) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    assert story.task(stage, dies=["commit"]).end() == {"gone": True}  # its transaction holds up the ledger
    driver.kill()

    successor = story.driver(tasks=1, stops=["fence", "write task count"])
    successor.wait_until_stopped()
    with TransactionsClient(story.pipeline.kafka) as client:  # those that are decided may wait for their markers
        listed = client.list(f"{story.pipeline.group_id}-")
    ongoing = [each.transactional_id for each in listed if each.state is TransactionState.ONGOING]
    assert ongoing, "before it is fenced, only the timeout ends it"
    successor.go_on()
    successor.wait_until_stopped()


def test_v4_a_plan_on_record_is_adopted_and_never_written_again(story: Any) -> None:
    first = story.driver(slices=4, stops=["planner init"])
    first.wait_until_stopped()
    second = story.driver(slices=2, stops=["planner init"])
    second.wait_until_stopped()
    first.go_on()
    assert first.end()["error"] == "FencedError"  # but its plan is on record

    second.go_on()
    stage = story.stage_of(second)

    assert len(story.plans()) == 1
    assert len(stage["slices"]) == 4


def test_overlapping_intervals_are_admitted_one_at_a_time(story: Any, days: Any) -> None:
    first = story.driver(run=days(1, 2), stops=["planner write plan"])
    first.wait_until_stopped()  # it has found no other plan
    second = story.driver(run=days(2, 2))
    story.stage_of(second)
    first.go_on()

    event = first.wait_for("stage", "error")

    assert event.get("error") == "OverlapError", event


def test_the_generation_is_on_record_before_the_old_ids_are_fenced(story: Any) -> None:
    driver = story.driver(tasks=2)
    old_stage = story.stage_of(driver)
    old = story.task(old_stage, 1, stops=["init", "begin"])
    old.wait_until_stopped()
    driver.kill()
    successor = story.driver(tasks=1, stops=["fence"])
    successor.wait_until_stopped()
    old.go_on()  # it inits between the two
    assert old.end()["error"] == "FencedError"

    successor.go_on()
    story.write(story.stage_of(successor))

    story.require_no_duplicate()


def test_as_many_ids_are_fenced_as_the_last_generation_had(story: Any) -> None:
    driver = story.driver(tasks=2)
    old = story.task(story.stage_of(driver), 1, stops=["begin"])
    old.wait_until_stopped()
    driver.kill()
    successor = story.driver(tasks=1)
    story.write(story.stage_of(successor))

    old.go_on()

    assert old.end()["error"] == "FencedError"
    story.require_no_duplicate()


def test_a_retry_writes_only_if_its_input_has_the_rows_that_are_committed(story: Any) -> None:
    """A row moves from a slice that is committed to one that is not; another one moves the other way."""
    driver = story.driver(tasks=1)
    assert story.task(story.stage_of(driver), dies=["commit#3"]).end() == {"gone": True}
    driver.kill()
    story.swap_lines(12, 35)

    end = story.drive(story.driver(tasks=1))

    assert end.get("error") == "InputChangedError", end
    assert "slice 1 is committed with 10 records" in end["text"]
    story.require_no_duplicate()


@contextmanager
def _a_foreign_transaction_in_the_ledger(story: Any) -> Iterator[TransactionalProducer]:
    pipeline = story.pipeline
    foreign = TransactionalProducer(pipeline.kafka, f"{pipeline.group_id}-foreign", timeout_ms=300_000)
    foreign.init()
    foreign.begin()
    for partition in range(2):
        foreign.produce(pipeline.ledger_topic, b'["foreign",null]', b"{}", partition=partition)
    foreign.flush()
    try:
        yield foreign
    finally:
        foreign.abort()


def test_a_read_goes_to_the_uncommitted_end(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=["begin"])
    first.wait_until_stopped()
    with _a_foreign_transaction_in_the_ledger(story) as foreign:
        first.go_on()
        assert "written" in first.end()  # committed, behind the open transaction
        again = story.task(stage, stops=["read control again"])
        again.wait_for_line("Has waited", "-foreign has a transaction open")
        assert "read control again" not in again.steps()
        foreign.abort()
    again.wait_until_stopped()

    again.go_on()
    assert "written" in again.end()

    story.require_no_duplicate()


def test_a_task_takes_its_id_before_it_reads(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=["begin"])
    first.wait_until_stopped()
    second = story.task(stage, stops=["read slices"])
    second.wait_until_stopped()

    first.go_on()
    assert first.end().get("error") == "FencedError"
    second.go_on()
    assert "written" in second.end()

    story.require_no_duplicate()


def test_a_task_asks_the_ledger_what_an_earlier_attempt_has_committed(story: Any) -> None:
    stage = story.stage_of(story.driver(tasks=1))
    story.write(stage)

    assert "written" in story.task(stage).end()

    story.require_no_duplicate()


def test_the_ledger_record_is_in_the_transaction_of_the_data(story: Any) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    assert story.task(stage, dies=["commit"]).end() == {"gone": True}

    assert "written" in story.task(stage).end()

    story.require_no_duplicate()


def test_m7_an_outdated_attempt_does_not_fence_its_successor(story: Any) -> None:
    driver = story.driver(tasks=1)
    old_stage = story.stage_of(driver)
    driver.kill()
    new_stage = story.stage_of(story.driver(tasks=1))
    new = story.task(new_stage, stops=["begin"])
    new.wait_until_stopped()

    assert story.task(old_stage).end()["error"] == "FencedError"
    new.go_on()

    assert "written" in new.end()
    story.require_no_duplicate()


def test_m9_giving_up_fences_the_tasks_first(story: Any) -> None:
    driver = story.driver(tasks=1)
    task = story.task(story.stage_of(driver), stops=["begin"])
    task.wait_until_stopped()
    driver.kill()
    assert "abandoned" in story.abandoner().end()

    task.go_on()

    assert task.end()["error"] == "FencedError"
    assert not story.drained()  # records of a run that is no more


def test_m10_a_task_that_does_not_find_its_generation_writes_nothing(story: Any) -> None:
    driver = story.driver(tasks=1)
    task = story.task(story.stage_of(driver), stops=["init"])
    task.wait_until_stopped()
    driver.kill()
    assert "abandoned" in story.abandoner().end()

    task.go_on()  # it inits after the fencing

    assert task.end()["error"] == "FencedError"
    assert not story.drained()
