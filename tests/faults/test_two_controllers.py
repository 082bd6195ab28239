"""Two controllers that begin at the same instant, a hundred times: never two acting, and never none."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_eos_provider.errors import FencedError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.rollout.journal import Journal, ask, read_journal
from airflow_eos_provider.rollout.records import (
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("contender.py")
ROUNDS = 100

#: The second begins so many milliseconds after the first, round by round over again: a first one needs about a
#: tenth of a second from its look at the journal to its act.
LATER_MS = (0, 0, 0, 2, 5, 10, 20, 40, 60, 80)


@contextlib.contextmanager
def contenders(kafka: KafkaSettings, acts: Path) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, str(PROGRAM), kafka.bootstrap_servers, str(acts)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    # Whatever hangs ends the test, not the other way round.
    watchdog = threading.Timer(400, lambda: [child.kill() for child in both])
    watchdog.start()
    try:
        yield both
    finally:
        watchdog.cancel()
        for child in both:
            child.kill()
            child.communicate()


def test_who_fences_a_controller_in_mid_act_waits_until_the_act_is_over(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looks before the lease of the first appears, and fences it after it was permitted to act."""
    first, second = (Journal(kafka, "overtaken", lease_seconds=30.0, act_seconds=3.0) for _ in range(2))
    step = Step("w1:8083", StepStatus.INTENT, time.time())
    permitted_at = []

    def overtake() -> None:  # what comes between the second one's look and its fencing
        first.acquire()
        first.begin(RolloutRecord("r1", {}, {}, RolloutState.RUNNING, time.time()))
        first.record(step)
        first.confirm("w1:8083: stop")
        permitted_at.append(time.time())

    first._create_topic()
    monkeypatch.setattr(second, "_create_topic", overtake)

    content = second.acquire()

    assert time.time() >= permitted_at[0] + 2.9, "it did not wait for the act"
    assert content.steps["r1"]["w1:8083"].status is StepStatus.INTENT
    for write in (lambda: first.confirm("w1:8083: start"), lambda: first.record(step)):
        with pytest.raises(FencedError):
            write()


def test_a_request_fences_nobody_and_is_answered_once(kafka: KafkaSettings) -> None:
    journal = Journal(kafka, "asked", lease_seconds=30.0, act_seconds=3.0)
    rollout = RolloutRecord("r1", {}, {}, RolloutState.RUNNING, time.time())
    journal.acquire()
    journal.begin(rollout)
    assert journal.request() is None
    asked = Request("r1", RequestKind.PAUSE, time.time(), "ann", "lunch")
    ask(kafka, "asked", replace(asked, rollout_id="another"))
    ask(kafka, "asked", asked)
    began = time.monotonic()
    assert journal.request() == asked
    assert time.monotonic() - began < 2, "a look holds up the roll"
    journal.record(Step("w1:8083", StepStatus.INTENT, time.time()))
    assert journal.request() == asked, "it was forgotten before it was answered"
    journal.end(replace(rollout, state=RolloutState.PAUSED))
    assert "r1" not in read_journal(kafka, "asked").requests


def test_of_two_controllers_never_two_act(kafka: KafkaSettings, tmp_path: Path) -> None:
    acts = tmp_path / "acts"
    seen: Counter[tuple[str, ...]] = Counter()
    with contenders(kafka, acts) as both:
        for number in range(ROUNDS):
            group = f"contended-{number // 10}"  # some rounds find no journal topic yet
            moment = time.time() + 0.02
            order = both if number % 2 else both[::-1]
            for child, later in zip(order, (0, LATER_MS[number % len(LATER_MS)]), strict=True):
                assert child.stdin is not None
                child.stdin.write(f"{group} {moment + later / 1000}\n")
            outcomes = []
            for child in both:
                assert child.stdout is not None
                outcomes.append(child.stdout.readline().strip())
            assert all(outcomes), "a controller ended with an error, or hung"
            seen[tuple(sorted(outcomes))] += 1
            # One whose commit was not answered may be the one that has the lease.
            assert {"through", "unanswered"} & set(outcomes), f"round {number}: neither came through, but {outcomes}"
    lines = acts.read_text(encoding="ascii").splitlines()
    unanswered = sum(count for outcomes, count in seen.items() if "unanswered" in outcomes)
    assert unanswered < ROUNDS / 10, f"the brokers hardly answer: {seen}"
    assert len(lines) >= 2 * (ROUNDS - unanswered)
    for begins, ends in zip(lines[::2], lines[1::2], strict=True):
        assert begins.split() == ["begins", ends.split()[1]], "two were acting at once"
        assert ends.startswith("ends ")
    alone = seen[("through", "through")]  # one after the other, or not at the same time after all
    assert alone < ROUNDS / 2, f"they hardly met: {seen}"
