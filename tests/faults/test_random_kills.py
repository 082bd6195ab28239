"""Drivers and tasks of many intervals are killed and paused at random moments, and retried until all is done."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.interval.interval import Run

#: How many intervals are written at once; how often a process is struck; attempts of one task in one stage.
_AT_ONCE = 3
_STRUCK = 0.35
_ATTEMPTS = 4

_LINES, _SLICES = 12, 3

#: ``EOS_RANDOM_KILLS=200 pytest -n0 tests/faults/test_random_kills.py`` is the soak.
INTERVALS = int(os.environ.get("EOS_RANDOM_KILLS", "15"))


class _Chaos:
    """Retries one interval as Airflow and Spark do, and strikes whom it has started."""

    def __init__(self, story: Any, run: Run, seed: int) -> None:
        self._story = story
        self._run = run
        self._random = random.Random(f"{seed}/{run.name}")
        self.struck = 0

    def write(self) -> None:
        for _ in range(30):
            driver = self._start(
                self._story.driver, run=self._run, tasks=self._random.randint(1, 4), lines=_LINES, slices=_SLICES
            )
            event = driver.wait_for("stage", "completed", "error", "gone", "struck")
            if "stage" in event:
                self._write_stage(self._story.stage_from(event))
                driver.tell_if_there("the stage has ended")
                event = driver.wait_for("completed", "error", "gone", "struck")
            if "completed" in event:
                return
        raise AssertionError(f"{self._run} is not complete after 30 drivers")

    def _write_stage(self, stage: Any) -> None:
        for number in stage.tasks:
            for _ in range(_ATTEMPTS):
                task = self._start(self._story.task, stage=stage, number=number)
                if "written" in task.wait_for("written", "error", "gone", "struck"):
                    break

    def _start(self, start: Callable[..., Any], **job: Any) -> Any:
        actor = start(**job)
        if self._random.random() < _STRUCK:
            self.struck += 1
            how = self._random.choice([signal.SIGKILL, signal.SIGSTOP])
            actor.strike(how, after=self._random.uniform(0.05, 1.0), wakes_after=self._random.uniform(0.1, 3.0))
        return actor


@pytest.mark.timeout(max(1800, 20 * INTERVALS))
def test_random_kills_lose_and_double_nothing(story: Any, days: Callable[..., Run], seed: int) -> None:
    # What the dead leave open holds up the other intervals until then.
    story.control_timeout_ms = 3_000
    story.pipeline = replace(story.pipeline, transaction_timeout_ms=4_000)
    runs = [days(day) for day in range(1, INTERVALS + 1)]
    for run in runs:
        story.source(run, _LINES)
    chaos = [_Chaos(story, run, seed) for run in reversed(runs)]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(one.write) for one in chaos]:
            done.result()
    story.let_all_end()
    story.wait_for_open_transactions()

    assert sum(one.struck for one in chaos) > INTERVALS / 4, "hardly anybody was struck"
    story.require_exactly_once(*runs)
