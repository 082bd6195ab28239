"""A start is waited for while it makes progress; who dies or hangs is named with the end of its own log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.lab.startup_wait import Activity, Seen, Starting, StartupLimits, seen_now, wait_until_ready
from airflow_eos_provider.processes import spawn
from tests.waiting import until

STARTUP_LIMITS = StartupLimits(idle_seconds=100, overall_seconds=1000)

Begin = Callable[[str, str], Starting]


@pytest.mark.parametrize(
    ("elapsed", "idle", "reason"),
    [
        (99, 99, None),
        (999, 50, None),
        (120, 101, "no progress for 101 s"),
        (1001, 1, "after 1001 s, the limit"),
    ],
    ids=["waits", "waits-long-for-one-that-works", "hangs", "never-gets-ready"],
)
def test_one_that_hangs_or_never_gets_ready_is_given_up(elapsed: float, idle: float, reason: str | None) -> None:
    verdict = STARTUP_LIMITS.given_up_because(elapsed, idle)
    assert verdict is None if reason is None else verdict is not None and reason in verdict


@pytest.mark.parametrize(
    ("before", "after", "is_progress"),
    [
        (Activity(10, 1.0), Activity(10, 1.1), False),
        (Activity(10, 1.0), Activity(11, 1.0), True),
        (Activity(10, 1.0), Activity(10, 1.5), True),
        (Activity(10, 9.0), Activity(10, 2.0), True),
        (Activity(10, 1.0), Activity(0, 1.0), True),
    ],
    ids=["a-little-cpu", "a-line", "half-a-second-of-cpu", "a-child-ended", "a-new-log"],
)
def test_progress_is_a_log_that_grows_or_cpu_time(before: Activity, after: Activity, is_progress: bool) -> None:
    assert after.is_progress_since(before) is is_progress


def test_each_part_is_idle_since_its_own_last_progress() -> None:
    seen = seen_now({}, {"scheduler": Activity(0, 0), "triggerer": Activity(0, 0)}, 0)
    seen = seen_now(seen, {"scheduler": Activity(5, 0), "triggerer": Activity(0, 0.1)}, 60)
    seen = seen_now(seen, {"scheduler": Activity(5, 0), "triggerer": Activity(0, 0.2)}, 90)
    assert {name: one.idle_seconds(100) for name, one in seen.items()} == {"scheduler": 40, "triggerer": 100}


def test_small_steps_add_up_to_progress() -> None:
    seen = {"scheduler": Seen(Activity(0, 0), 0)}
    for second in range(1, 11):
        seen = seen_now(seen, {"scheduler": Activity(0, second / 10)}, second)
    assert seen["scheduler"].at == 10


def test_one_that_was_not_awaited_meanwhile_has_its_time_again() -> None:
    """While the api-server does not answer, nobody knows of the others, so they are not awaited."""
    seen = seen_now({"scheduler": Seen(Activity(0, 0), 0)}, {"api-server": Activity(0, 0)}, 90)
    assert seen_now(seen, {"scheduler": Activity(0, 0)}, 95)["scheduler"].idle_seconds(100) == 5


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a process by its name and its program in Python, with a log of its own."""
    with ExitStack() as stack:

        def start(name: str, program: str) -> Starting:
            log = tmp_path / f"{name}.log"
            process = spawn([sys.executable, "-uc", program], log=log)
            stack.callback(process.stop, kill=True)
            deadline = time.monotonic() + 60
            while not log.read_text():  # its first line: it runs
                assert time.monotonic() < deadline
                time.sleep(0.01)
            return Starting(name, process, log)

        yield start


def test_one_that_hangs_is_named_with_the_end_of_its_own_log(begin: Begin) -> None:
    hangs = begin("triggerer", "print('waits for a lock'); import time; time.sleep(600)")
    works = begin("scheduler", "print('all is well'); import time; time.sleep(600)")
    with pytest.raises(UnreachableError, match=r"triggerer is not ready after .* made no progress") as failure:
        wait_until_ready([hangs, works], lambda: ["triggerer"], StartupLimits(idle_seconds=0.5, overall_seconds=600))
    assert "waits for a lock" in str(failure.value)
    assert "all is well" not in str(failure.value)


def test_one_that_dies_is_named_at_once_though_another_one_is_awaited(begin: Begin) -> None:
    dies = begin("postgres", "print('no space left on device')")
    works = begin("scheduler", "print('waits for its database'); import time; time.sleep(600)")
    with pytest.raises(EosError, match="postgres ended while it started") as failure:
        wait_until_ready([works, dies], lambda: ["scheduler"], StartupLimits(idle_seconds=600, overall_seconds=600))
    assert "no space left on device" in str(failure.value)


def test_one_that_uses_the_cpu_is_waited_for_until_it_is_ready(begin: Begin) -> None:
    busy = begin("scheduler", "print('imports'); any(False for _ in iter(int, 1))")
    first = busy.activity()
    wait_until_ready(
        [busy],
        lambda: [] if busy.activity().is_progress_since(first) else ["scheduler"],
        StartupLimits(idle_seconds=60, overall_seconds=60),
    )
    assert busy.activity().log_bytes == first.log_bytes


def test_an_end_that_is_awaited_and_comes_between_two_questions_is_no_failure(begin: Begin) -> None:
    part = begin("migration", "print('done')")
    until(lambda: not part.process.is_alive(), "its end", seconds=30)
    answers = iter([("migration",), ()])
    wait_until_ready([part], lambda: next(answers), StartupLimits(30, 60))
    assert next(answers, None) is None
