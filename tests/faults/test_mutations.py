"""What each sentence of the protocol is for: without it, one interleaving breaks the promise; with it, it does not.

Every story runs twice, by the protocol as it is and by one with a sentence taken out (``mutations.py``). The actors
wait at named steps, so each interleaving is the same every time. Numbers as V1 are the findings of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.write.producer import TransactionalProducer

pytestmark = pytest.mark.side_by_side


def with_and_without(sentence: str) -> Any:
    """The protocol as it is, and without this sentence."""
    cases = [pytest.param(None, id="as it is"), pytest.param(sentence, id=sentence)]
    return pytest.mark.parametrize("mutation", cases)


def is_doubled(story: Any) -> bool:
    return any(count > 1 for count in story.drained().values())


@with_and_without("complete read first")
def test_v1_a_late_duplicate_reads_complete_last(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1, slices=1, stops=["read ledger at the end"])
    stage = story.stage_of(driver)
    last_read = "read slices" if mutation else "read complete"
    late = story.task(stage, mutation=mutation, stops=["init", last_read])
    late.wait_until_stopped()
    story.write(stage)
    driver.tell("the stage has ended")
    driver.wait_until_stopped()  # the run's own ids are fenced: whoever inits from here on is not
    late.go_on()
    late.wait_until_stopped()

    driver.go_on()
    assert "completed" in driver.end()
    late.go_on()
    end = late.end()

    assert is_doubled(story) == (mutation is not None)
    assert mutation or end["error"] == "FencedError"


@with_and_without("first read to the end")
def test_v2_the_first_look_at_the_ledger_does_not_wait_for_a_dead_task(story: Any, mutation: str | None) -> None:
    # Who waits for the dead task's transaction waits for its timeout: short where that has to come, long where not.
    story.pipeline = replace(story.pipeline, transaction_timeout_ms=20_000 if mutation else 300_000)
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    assert story.task(stage, dies=["commit"]).end() == {"gone": True}  # its transaction holds up the ledger
    driver.kill()

    successor = story.driver(tasks=1, mutation=mutation, stops=["fence", "write task count"])
    successor.wait_until_stopped()
    with TransactionsClient(story.pipeline.kafka) as client:  # those that are decided may wait for their markers
        listed = client.list(f"{story.pipeline.group_id}-")
    ongoing = [each.transactional_id for each in listed if each.state is TransactionState.ONGOING]
    assert bool(ongoing) == (mutation is None), "before it is fenced, only the timeout ends it"
    successor.go_on()
    successor.wait_until_stopped()
    assert not is_doubled(story)


@with_and_without("own plan not adopted")
def test_v4_a_plan_on_record_is_adopted_and_never_written_again(story: Any, mutation: str | None) -> None:
    first = story.driver(slices=4, stops=["planner init"])
    first.wait_until_stopped()
    second = story.driver(slices=2, mutation=mutation, stops=["planner init"])
    second.wait_until_stopped()
    first.go_on()
    assert first.end()["error"] == "FencedError"  # but its plan is on record

    second.go_on()
    stage = story.stage_of(second)

    assert len(story.plans()) == (2 if mutation else 1)
    assert len(stage["slices"]) == (2 if mutation else 4)


@with_and_without("no planner id")
def test_overlapping_intervals_are_admitted_one_at_a_time(story: Any, days: Any, mutation: str | None) -> None:
    first = story.driver(run=days(1, 2), mutation=mutation, stops=["planner write plan"])
    first.wait_until_stopped()  # it has found no other plan
    second = story.driver(run=days(2, 2), mutation=mutation)
    story.stage_of(second)
    first.go_on()

    event = first.wait_for("stage", "error")

    assert ("stage" in event) == (mutation is not None), event
    assert mutation or event["error"] == "OverlapError"


@with_and_without("fence before generation")
def test_the_generation_is_on_record_before_the_old_ids_are_fenced(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=2)
    old_stage = story.stage_of(driver)
    old = story.task(old_stage, 1, stops=["init", "begin"])
    old.wait_until_stopped()
    driver.kill()
    successor = story.driver(tasks=1, mutation=mutation, stops=["write generation" if mutation else "fence"])
    successor.wait_until_stopped()
    old.go_on()  # it inits between the two
    if mutation:
        old.wait_until_stopped()
    else:
        assert old.end()["error"] == "FencedError"

    successor.go_on()
    story.write(story.stage_of(successor))
    old.go_on() if mutation else None
    assert not mutation or "written" in old.end()

    assert is_doubled(story) == (mutation is not None)


@with_and_without("fence new task count")
def test_as_many_ids_are_fenced_as_the_last_generation_had(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=2)
    old = story.task(story.stage_of(driver), 1, stops=["begin"])
    old.wait_until_stopped()
    driver.kill()
    successor = story.driver(tasks=1, mutation=mutation)
    story.write(story.stage_of(successor))

    old.go_on()
    end = old.end()

    assert is_doubled(story) == (mutation is not None)
    assert mutation or end["error"] == "FencedError"


@with_and_without("input not compared")
def test_a_retry_writes_only_if_its_input_has_the_rows_that_are_committed(story: Any, mutation: str | None) -> None:
    """A row moves from a slice that is committed to one that is not; another one moves the other way."""
    driver = story.driver(tasks=1)
    assert story.task(story.stage_of(driver), dies=["commit#3"]).end() == {"gone": True}
    driver.kill()
    story.swap_lines(12, 35)

    end = story.drive(story.driver(tasks=1, mutation=mutation))

    assert is_doubled(story) == (mutation is not None)
    assert ("completed" in end) == (mutation is not None)  # without the sentence nobody hears of it
    assert mutation or end["error"] == "InputChangedError"
    assert mutation or "slice 1 is committed with 10 records" in end["text"]


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


@with_and_without("committed end")
def test_a_read_goes_to_the_uncommitted_end(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=["begin"])
    first.wait_until_stopped()
    with _a_foreign_transaction_in_the_ledger(story) as foreign:
        first.go_on()
        assert "written" in first.end()  # committed, behind the open transaction
        again = story.task(stage, mutation=mutation, stops=["read control again"])
        if mutation:
            again.wait_until_stopped()
        else:
            again.wait_for_line("Has waited", "-foreign has a transaction open")
            assert "read control again" not in again.steps()
        foreign.abort()
    if not mutation:
        again.wait_until_stopped()

    again.go_on()
    assert "written" in again.end()

    assert is_doubled(story) == (mutation is not None)


@with_and_without("read before init")
def test_a_task_takes_its_id_before_it_reads(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=["begin"])
    first.wait_until_stopped()
    second = story.task(stage, mutation=mutation, stops=["init" if mutation else "read slices"])
    second.wait_until_stopped()

    first.go_on()
    ended = first.end()
    second.go_on()
    assert "written" in second.end()

    assert is_doubled(story) == (mutation is not None)
    assert mutation or ended["error"] == "FencedError", ended


@with_and_without("slices not read")
def test_a_task_asks_the_ledger_what_an_earlier_attempt_has_committed(story: Any, mutation: str | None) -> None:
    stage = story.stage_of(story.driver(tasks=1))
    story.write(stage)

    assert "written" in story.task(stage, mutation=mutation).end()

    assert is_doubled(story) == (mutation is not None)


@with_and_without("ledger record on its own")
def test_the_ledger_record_is_in_the_transaction_of_the_data(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1, slices=1)
    stage = story.stage_of(driver)
    assert story.task(stage, mutation=mutation, dies=["commit"]).end() == {"gone": True}

    assert "written" in story.task(stage).end()

    assert is_doubled(story) == (mutation is not None)


@with_and_without("no look before init")
def test_m7_an_outdated_attempt_does_not_fence_its_successor(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1)
    old_stage = story.stage_of(driver)
    driver.kill()
    new_stage = story.stage_of(story.driver(tasks=1))
    new = story.task(new_stage, stops=["begin"])
    new.wait_until_stopped()

    assert story.task(old_stage, mutation=mutation).end()["error"] == "FencedError"
    new.go_on()

    assert ("written" in new.end()) == (mutation is None)
    assert not is_doubled(story)


@with_and_without("abandon without fencing")
def test_m9_giving_up_fences_the_tasks_first(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1)
    task = story.task(story.stage_of(driver), stops=["begin"])
    task.wait_until_stopped()
    driver.kill()
    assert "abandoned" in story.abandoner(mutation=mutation).end()

    task.go_on()
    end = task.end()

    assert bool(story.drained()) == (mutation is not None)  # records of a run that is no more
    assert mutation or end["error"] == "FencedError"


@with_and_without("own generation not looked for")
def test_m10_a_task_that_does_not_find_its_generation_writes_nothing(story: Any, mutation: str | None) -> None:
    driver = story.driver(tasks=1)
    task = story.task(story.stage_of(driver), mutation=mutation, stops=["init"])
    task.wait_until_stopped()
    driver.kill()
    assert "abandoned" in story.abandoner().end()

    task.go_on()  # it inits after the fencing
    end = task.end()

    assert bool(story.drained()) == (mutation is not None)
    assert mutation or end["error"] == "FencedError"
