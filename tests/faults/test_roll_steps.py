"""``eos apply`` killed, and suspended, at each moment of a roll of real workers; then another process goes on.

A roll restarts each worker once, which costs most of what a test takes. So one roll is killed several times: each
further process takes it up and is killed at a later moment.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.journal import JournalContent, read_journal
from airflow_eos_provider.journal.records import Lease, RolloutState
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.controller import Controller
from tests import seen
from tests.forked import FORKS
from tests.integration.conftest import AT_A_MOMENT, Eos
from tests.integration.offsets_cluster import SuspendedCommand
from tests.integration.rolling import append, assert_every_line_is_delivered, rolling_lab
from tests.waiting import wait_for

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, UNREACHABLE, FENCED = 3, 6, 7

#: What has not ended or come by then hangs; a roll of two workers takes its time on a busy machine. Seconds.
DEADLINE_SECONDS = 300.0

#: A lease that is soon over, since a suspended owner does not renew it. It covers an act: the stop's grace and the two
#: seconds of ``eos_at_a_moment.py``.
SHORT_LEASE = ("--lease-seconds", "5", "--stop-grace", "3")

#: A lease that only force ends, with an act that lasts longer than the start of whoever takes over.
LONG_LEASE = ("--lease-seconds", "240", "--stop-grace", "10")


class Rolls(Eos):
    """``eos`` with the short limits of ``eos_at_a_moment.py``, for rolls between disabled and preparing."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__(lab, folder)
        self._children: list[subprocess.Popen[str]] = []

    def begin(self, moment: str, *arguments: str) -> subprocess.Popen[str]:
        """``eos`` that suspends itself at a moment, if that comes."""
        all_arguments = (moment, "SIGSTOP", *arguments)
        child = FORKS.start(AT_A_MOMENT, all_arguments, folder=self.folder, environment=self.environment)
        self._children.append(child)
        return child

    def end_of(self, child: subprocess.Popen[str], expect: int) -> str:
        output, errors = child.communicate(timeout=DEADLINE_SECONDS)
        assert child.returncode == expect, f"exit {child.returncode}, expected {expect}\n{output}\n{errors}"
        return output

    def suspended(self, moment: str, *arguments: str) -> tuple[subprocess.Popen[str], Lease]:
        """``eos`` that has suspended itself at a moment, and its lease."""
        child = self.begin(moment, *arguments)
        SuspendedCommand(child).await_step()
        lease = self.journal().lease
        assert lease is not None
        assert lease.owner.pid == child.pid
        return child, lease

    def suspended_past_its_lease(self, moment: str, *arguments: str) -> subprocess.Popen[str]:
        child, lease = self.suspended(moment, *arguments, *SHORT_LEASE)
        wait_for("the lease has ended", lambda: time.time() > lease.expires_at)  # one machine, so one clock
        return child

    def wakes_up_fenced(self, child: subprocess.Popen[str]) -> None:
        child.send_signal(signal.SIGCONT)
        self.end_of(child, FENCED)

    def other_plan(self) -> tuple[Mode, str]:
        """A plan to the mode that the workers are not in."""
        target = Mode.DISABLED if seen.modes(self.lab) == {Mode.PREPARING} else Mode.PREPARING
        with Controller(self.lab.cluster()) as controller:
            return target, controller.plan(target).hash

    def more_starts(self, before: dict[str, int]) -> dict[str, int]:
        """How often each worker was started since."""
        return {worker: count - before[worker] for worker, count in seen.starts(self.lab).items()}

    def journal(self) -> JournalContent:
        return read_journal(self.lab.cluster().kafka, self.lab.group_id)

    def end_all(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.send_signal(signal.SIGCONT)
                child.communicate()


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers in disabled, with a file source."""
    return rolling_lab(lab_factory, "steps", Mode.DISABLED)


@pytest.fixture(scope="module")
def rolls(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolls]:
    rolls = Rolls(lab, tmp_path_factory.mktemp("rolls"))
    yield rolls
    rolls.end_all()


def test_a_killed_roll_goes_on_and_repeats_and_skips_nothing(rolls: Rolls) -> None:
    target, plan = rolls.other_plan()
    before = seen.starts(rolls.lab)
    # The helper of the restart ends what it has begun, so each worker can be killed at once in the act.
    for moment in ("file written", "stopped", "gate polled", "cut off", "ended"):
        append(rolls.lab, 50)
        rolls.killed_at(moment, "apply", "--plan", plan)
        assert max(rolls.more_starts(before).values()) <= 1, f"a worker was restarted again before: {moment}"
    append(rolls.lab, 50)
    report = json.loads(rolls.end_of(rolls.begin("never", "apply", "--plan", plan, "--json"), 0))["report"]

    assert seen.modes(rolls.lab) == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)
    assert [worker["mode"] for worker in report["workers"]] == [target, target]
    record = rolls.journal().last_of(plan)
    assert record is not None
    assert (record.rollout_id, record.state) == (report["rollout_id"], RolloutState.DONE)
    assert_every_line_is_delivered(rolls.lab)


def test_rolls_that_were_taken_over_while_suspended_touch_nothing_more(rolls: Rolls) -> None:
    """The first by force, the others past their leases; the second one between the permission to stop and the stop.

    The last one is suspended there within its lease, and goes on.
    """
    target, plan = rolls.other_plan()
    append(rolls.lab, 50)
    before = seen.starts(rolls.lab)
    apply = ("apply", "--plan", plan)
    first, lease = rolls.suspended("file written", *apply, *LONG_LEASE)
    second = rolls.suspended_past_its_lease("permitted", *apply, "--take-over", "--reason", "pid 1 hangs")
    third = rolls.suspended_past_its_lease("gate polled", *apply)
    last, _ = rolls.suspended("permitted", *apply)
    last.send_signal(signal.SIGCONT)
    rolls.end_of(last, 0)

    journal = rolls.journal()
    record = journal.last_of(plan)
    assert record is not None
    (taken_over,) = [e for e in journal.events[record.rollout_id] if "by --take-over" in e.note]
    assert f"taken over from pid {first.pid}" in taken_over.note
    assert taken_over.reason == "pid 1 hangs"
    assert min(s.restarted_after for s in journal.steps[record.rollout_id].values()) >= lease.acts_until
    done = seen.pids(rolls.lab), seen.starts(rolls.lab), seen.files(rolls.lab)
    assert seen.modes(rolls.lab) == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)

    for child in (first, second, third):
        rolls.wakes_up_fenced(child)
    assert (seen.pids(rolls.lab), seen.starts(rolls.lab), seen.files(rolls.lab)) == done
    assert_every_line_is_delivered(rolls.lab)


def test_of_two_rolls_that_begin_at_once_one_is_carried_out(rolls: Rolls) -> None:
    target, plan = rolls.other_plan()
    before = seen.starts(rolls.lab)
    both = [rolls.begin("never", "apply", "--plan", plan) for _ in range(2)]
    codes = []
    for child in both:
        child.communicate(timeout=DEADLINE_SECONDS)
        codes.append(child.returncode)
    assert 0 in codes
    assert set(codes) <= {0, REFUSED, FENCED, UNREACHABLE}  # the last: of a commit nothing was on record yet
    assert seen.modes(rolls.lab) == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)
