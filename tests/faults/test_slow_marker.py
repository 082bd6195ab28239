"""``complete`` never runs ahead of the data: also not when the data's broker is slow to take a marker (V3).

The commit of the last slice is decided, its marker stands in the ledger, but not yet in the data partition, which is on
a second broker that is suspended.
"""

from __future__ import annotations

from typing import Any

from tests.faults.second_broker import SecondBroker, place_topics, standing_still

#: A suspended broker keeps its session, and its markers wait for it, however long the questions of others hang there.
BROKER = {"broker.session.timeout.ms": "600000", "request.timeout.ms": "600000"}


def test_v3_complete_waits_for_the_markers_in_the_data(story: Any, second_broker: SecondBroker) -> None:
    place_topics(story.pipeline)
    driver = story.driver(tasks=1, slices=1, stops=["fence own ids"])
    stage = story.stage_of(driver)
    task = story.task(stage, stops=["commit"])
    task.wait_until_stopped()
    driver.tell("the stage has ended")
    driver.wait_until_stopped()  # it has looked at the topics again, which a suspended broker may hold up

    with standing_still(second_broker):
        task.go_on()
        assert "written" in task.end()
        driver.go_on()
        own_id = story.pipeline.transactional_id(story.run, 0)
        driver.wait_for_line("Has waited", f"for the end of the last transaction of {own_id} in every partition")
        assert story.completes() == []

    assert "completed" in driver.wait_for("completed", "error")
    assert story.drained(stable_only=True) == story.expected()
    story.require_exactly_once()
