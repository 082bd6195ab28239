"""A driver or a task dies, or is suspended and wakes up too late, at every step; then comes the retry.

After each case a reader of committed records gets the source, record by record, and ``complete`` stands once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from airflow_eos_provider.interval.protocol import admission, coordinator, task

pytestmark = pytest.mark.side_by_side

DRIVER_STEPS = [*coordinator.STEPS, *admission.STEPS]


def steps(names: Collection[str], first: str) -> Any:
    """A case for each step; one is in the first tier."""
    assert first in names
    cases = [pytest.param(name, marks=pytest.mark.first if name == first else []) for name in names]
    return pytest.mark.parametrize("step", cases)


def leaves_no_plan_open_for_long(step: str) -> dict[str, int]:
    """Of a driver that dies or is suspended: its plan's transaction holds up its successor, which does not fence it."""
    return {"control_timeout_ms": 3_000} if step == "planner commit plan" else {}


@steps(DRIVER_STEPS, first="commit complete")
def test_a_driver_killed_at_any_step_is_retried(story: Any, step: str) -> None:
    driver = story.driver(dies=[step], **leaves_no_plan_open_for_long(step))
    assert story.drive(driver) == {"gone": True}
    assert driver.steps()[-1] == step

    completed = story.complete(tasks=3)

    assert completed["already"] == (step == "done")
    story.require_exactly_once()


@steps(DRIVER_STEPS, first="run stage")
def test_a_driver_that_wakes_up_when_its_successor_is_done_harms_nothing(story: Any, step: str) -> None:
    zombie = story.driver(stops=[step], **leaves_no_plan_open_for_long(step))
    assert "stopped" in story.drive(zombie)

    completed = story.complete(tasks=3)
    assert completed["already"] == (step == "done")
    story.require_exactly_once()
    zombie.go_on()
    end = story.drive(zombie, too_late=True)

    assert end.get("error") == "FencedError" or end.get("completed", {}).get("already") or step == "done", end
    story.require_exactly_once()


@steps(task.STEPS, first="commit")
def test_a_task_killed_at_any_step_is_retried(story: Any, step: str) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    first, other = story.task(stage, 0, dies=[f"{step}#1"]), story.task(stage, 1)
    assert first.end() == {"gone": True}

    assert "written" in story.task(stage, 0).end()
    assert "written" in other.end()
    driver.tell("the stage has ended")

    assert "completed" in driver.end()
    story.require_exactly_once()


@steps(task.STEPS[task.STEPS.index("begin") :], first="begin")
def test_a_task_killed_at_its_second_slice_is_retried(story: Any, step: str) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    assert story.task(stage, dies=[f"{step}#2"]).end() == {"gone": True}

    retry = story.task(stage)
    assert "written" in retry.end()
    driver.tell("the stage has ended")

    assert "completed" in driver.end()
    assert retry.steps().count("begin") == 3
    story.require_exactly_once()


@steps(task.STEPS, first="commit")
def test_a_task_that_wakes_up_when_the_run_is_complete_writes_nothing(story: Any, step: str) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    zombie = story.task(stage, stops=[f"{step}#1"])
    zombie.wait_until_stopped()

    assert "written" in story.task(stage).end()
    driver.tell("the stage has ended")
    assert "completed" in driver.end()
    zombie.go_on()

    assert zombie.end().get("error") == "FencedError"
    story.require_exactly_once()


@steps(task.STEPS, first="produce")
def test_a_task_that_wakes_up_beside_its_next_attempt_writes_nothing_twice(story: Any, step: str) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    first = story.task(stage, stops=[f"{step}#1"])
    first.wait_until_stopped()
    second = story.task(stage, stops=["begin#2"])
    second.wait_until_stopped()

    first.go_on()
    ends = [first.end()]
    second.go_on()
    ends.append(second.end())
    if not any("written" in end for end in ends):
        ends.append(story.task(stage).end())

    assert any("written" in end for end in ends), ends
    driver.tell("the stage has ended")
    assert "completed" in driver.end()
    story.require_exactly_once()


@steps(task.STEPS, first="commit")
def test_a_task_of_a_dead_driver_that_wakes_up_late_writes_nothing_twice(story: Any, step: str) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    assert "written" in story.task(stage, 0).end()
    zombie = story.task(stage, 1, stops=[f"{step}#1"])
    zombie.wait_until_stopped()
    driver.kill()

    successor = story.driver(tasks=1)  # another parallelism: slices change hands
    new_stage = story.stage_of(successor)
    zombie.go_on()
    assert zombie.end().get("error") == "FencedError"
    story.write(new_stage)
    successor.tell("the stage has ended")

    assert "completed" in successor.end()
    story.require_exactly_once()


@steps(task.STEPS, first="flush")
def test_a_task_and_its_driver_killed_together_are_retried(story: Any, step: str) -> None:
    driver = story.driver()
    stage = story.stage_of(driver)
    assert story.task(stage, 1, dies=[step]).end() == {"gone": True}
    driver.kill()

    assert story.complete(tasks=3)["already"] is False

    story.require_exactly_once()
