"""``eos apply`` killed, and suspended, at each moment of a roll of real workers; then another process goes on.

A roll restarts each worker once, which costs most of what a test takes. So one roll is killed several times: each
further process takes it up and is killed at a later moment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.journal.journal import JournalContent, read_journal
from airflow_eos_provider.journal.records import Lease, RolloutState
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.controller import Controller
from tests import seen
from tests.forked import COLUMNS, FORKS
from tests.waiting import wait_for

PROGRAM = "tests.faults.eos_at_a_moment"

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, UNREACHABLE, FENCED = 3, 6, 7

#: What has not ended or come by then hangs; a roll of two workers takes its time on a busy machine. Seconds.
DEADLINE_SECONDS = 300.0

#: A lease that is soon over, since a suspended owner does not renew it. It covers an act: the stop's grace and the two
#: seconds of ``eos_at_a_moment.py``.
SHORT_LEASE = ("--lease-seconds", "5", "--stop-grace", "3")

#: A lease that only force ends, with an act that lasts longer than the start of whoever takes over.
LONG_LEASE = ("--lease-seconds", "240", "--stop-grace", "10")

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class Rolls:
    """Rolls of one lab's workers, back and forth between disabled and preparing."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder
        self._lines = 0
        self._children: list[subprocess.Popen[str]] = []

    def start(self, moment: str, signal_name: str, *arguments: str) -> subprocess.Popen[str]:
        all_arguments = (moment, signal_name, *arguments)
        child = FORKS.start(PROGRAM, all_arguments, folder=self._folder, environment=self._environment)
        self._children.append(child)
        return child

    def run(self, *arguments: str, expect: int = 0) -> str:
        return self._forked("never", arguments, expect)

    def kill(self, moment: str, *arguments: str) -> None:
        """Run ``eos``, which is killed at a moment."""
        self._forked(moment, arguments, -signal.SIGKILL)

    def _forked(self, moment: str, arguments: tuple[str, ...], expect: int) -> str:
        done = FORKS.run(
            PROGRAM,
            (moment, "SIGKILL", *arguments),
            folder=self._folder,
            environment=self._environment,
            seconds=DEADLINE_SECONDS,
        )
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": COLUMNS, "EOS_CLUSTER": str(self.lab.cluster_file)}

    def end_of(self, child: subprocess.Popen[str], expect: int) -> str:
        output, errors = child.communicate(timeout=DEADLINE_SECONDS)
        assert child.returncode == expect, f"exit {child.returncode}, expected {expect}\n{output}\n{errors}"
        return output

    def stopped(self, child: subprocess.Popen[str]) -> None:
        """Return when the process has stopped itself."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
            assert child.poll() is None, f"ended before the moment came: {child.communicate()}"
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.1)

    def suspended(self, moment: str, *arguments: str) -> tuple[subprocess.Popen[str], Lease]:
        """``eos`` that has suspended itself at a moment, and its lease."""
        child = self.start(moment, "SIGSTOP", *arguments)
        self.stopped(child)
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

    def plan(self) -> tuple[Mode, str]:
        """A plan to the mode that the workers are not in."""
        target = Mode.DISABLED if self.modes() == {Mode.PREPARING} else Mode.PREPARING
        with Controller(self.lab.cluster()) as controller:
            return target, controller.plan(target).hash

    def modes(self) -> set[Mode | None]:
        return seen.modes(self.lab)

    def pids(self) -> dict[str, int]:
        return seen.pids(self.lab)

    def starts(self) -> dict[str, int]:
        return seen.starts(self.lab)

    def more_starts(self, before: dict[str, int]) -> dict[str, int]:
        """How often each worker was started since."""
        return {worker: count - before[worker] for worker, count in self.starts().items()}

    def journal(self) -> JournalContent:
        return read_journal(self.lab.cluster().kafka, self.lab.group_id)

    def append(self, lines: int = 50) -> None:
        with (self.lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"line {self._lines + n}\n" for n in range(lines))
        self._lines += lines

    def missing(self) -> set[str]:
        """The lines that readers of committed records do not get, after some time."""
        written = {f"line {n}" for n in range(self._lines)}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            records = read_to_end(self.lab.cluster().kafka, "lines").records
            got = {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}
            assert got <= written, "lines that were never written"
            if not written - got or time.monotonic() > deadline:
                return written - got
            time.sleep(0.2)

    def end_all(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.send_signal(signal.SIGCONT)
                child.communicate()


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers with next to no rebalance delay, and a file source."""
    lab = lab_factory(
        LabOptions(name="steps", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=200, session_timeout_ms=6000)
    )
    lab.create_topic("lines", 1)
    (lab.data_dir / "lines.txt").touch()
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


@pytest.fixture(scope="module")
def rolls(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolls]:
    rolls = Rolls(lab, tmp_path_factory.mktemp("rolls"))
    yield rolls
    rolls.end_all()


def test_a_killed_roll_goes_on_and_repeats_and_skips_nothing(rolls: Rolls) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    # The helper of the restart ends what it has begun, so each worker can be killed at once in the act.
    for moment in ("file written", "stopped", "gate polled", "cut off", "ended"):
        rolls.append()
        rolls.kill(moment, "apply", "--plan", plan)
        assert max(rolls.more_starts(before).values()) <= 1, f"a worker was restarted again before: {moment}"
    rolls.append()
    report = json.loads(rolls.run("apply", "--plan", plan, "--json"))["report"]

    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)
    assert [worker["mode"] for worker in report["workers"]] == [target, target]
    record = rolls.journal().last_of(plan)
    assert record is not None
    assert (record.rollout_id, record.state) == (report["rollout_id"], RolloutState.DONE)
    assert rolls.missing() == set()


def test_rolls_that_were_taken_over_while_suspended_touch_nothing_more(rolls: Rolls) -> None:
    """The first by force, the others past their leases; the second one between the permission to stop and the stop.

    The last one is suspended there within its lease, and goes on.
    """
    target, plan = rolls.plan()
    rolls.append()
    before = rolls.starts()
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
    done = rolls.pids(), rolls.starts(), seen.files(rolls.lab)
    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)

    for child in (first, second, third):
        rolls.wakes_up_fenced(child)
    assert (rolls.pids(), rolls.starts(), seen.files(rolls.lab)) == done
    assert rolls.missing() == set()


def test_of_two_rolls_that_begin_at_once_one_is_carried_out(rolls: Rolls) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    both = [rolls.start("never", "SIGKILL", "apply", "--plan", plan) for _ in range(2)]
    codes = []
    for child in both:
        child.communicate(timeout=DEADLINE_SECONDS)
        codes.append(child.returncode)
    assert 0 in codes
    assert set(codes) <= {0, REFUSED, FENCED, UNREACHABLE}  # the last: of a commit nothing was on record yet
    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)
