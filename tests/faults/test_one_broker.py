"""The only broker is killed in the middle of a run and comes back: the run, or its retry, ends exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.lab.broker import Broker
from airflow_eos_provider.lab.waiting import wait_for_broker
from airflow_eos_provider.processes import from_pid_file, spawn

pytestmark = pytest.mark.slow


@pytest.fixture
def kill_broker(broker: Broker) -> Callable[[], Callable[[], None]]:
    """Kill the broker; what is returned starts it again."""

    def kill() -> Callable[[], None]:
        process = from_pid_file(broker.pid_file)
        assert process is not None
        process.stop(kill=True)
        # The controller takes the broker back only when the session of the one that was killed is over.
        broker.config.write_bytes(set_property(broker.config.read_bytes(), "broker.session.timeout.ms", "2000"))
        return start

    def start() -> None:
        process = spawn(broker.start_command, log=broker.log, pid_file=broker.pid_file, cwd=broker.folder)
        wait_for_broker(broker.bootstrap_servers, process, broker.log)

    return kill


@pytest.mark.parametrize("step", ["flush#2", "commit#2"])
def test_a_slice_is_written_once_though_the_broker_died_under_it(story: Any, kill_broker: Any, step: str) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    task = story.task(stage, stops=[step])
    task.wait_until_stopped()

    start = kill_broker()
    task.go_on()  # it goes on while nobody answers
    start()

    story.write_on(stage, task)
    driver.tell("the stage has ended")
    story.finish_or_retry(driver)
    story.require_exactly_once()


@pytest.mark.parametrize("step", ["commit generation", "commit complete"])
def test_a_run_is_complete_once_though_the_broker_died_under_its_driver(
    story: Any, kill_broker: Any, step: str
) -> None:
    driver = story.driver(stops=[step])
    story.drive(driver)
    assert driver.steps()[-1] == step

    start = kill_broker()
    driver.go_on()
    start()

    story.finish_or_retry(driver)
    story.require_exactly_once()
