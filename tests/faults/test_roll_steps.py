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
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import LeaseHeldError
from airflow_eos_provider.journal.journal import JournalContent, read_journal
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.processes import identify
from airflow_eos_provider.rollout.controller import Controller
from tests import seen
from tests.forked import COLUMNS, FORKS
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("eos_at_a_moment.py")
PROGRAM_MODULE = "tests.faults.eos_at_a_moment"

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, UNREACHABLE, FENCED = 3, 6, 7

#: What has not ended or come by then hangs; a roll of two workers takes its time on a busy machine. Seconds.
DEADLINE_SECONDS = 300.0

#: A lease that a test can wait out; it is not renewed while its owner is suspended. It has to cover an act: the stop's
#: grace and the two seconds of ``eos_at_a_moment.py``.
LEASE = ("--lease-seconds", "5", "--stop-grace", "3")

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class Rolls:
    """Rolls of one lab's workers, back and forth between disabled and preparing."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder
        self._lines = 0
        self._children: list[subprocess.Popen[str]] = []

    def start(self, moment: str, signal_name: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(PROGRAM), moment, signal_name, *arguments],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self._children.append(child)
        return child

    def run(self, *arguments: str, expect: int = 0) -> str:
        return self._forked("never", arguments, expect)

    def kill(self, moment: str, *arguments: str) -> None:
        """Run ``eos``, which is killed at a moment."""
        self._forked(moment, arguments, -signal.SIGKILL)

    def _forked(self, moment: str, arguments: tuple[str, ...], expect: int) -> str:
        done = FORKS.run(
            PROGRAM_MODULE,
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


@pytest.mark.parametrize(
    "moments",
    [
        # The helper of the restart ends what it has begun, so each worker can be killed at once in the act.
        ("begun", "stopped", "gate polled", "passed", "cut off", "ended"),
        pytest.param(  # the last one with every worker through
            ("announced", "spawned", "started", "passed"), marks=pytest.mark.variant("four more of these moments")
        ),
        pytest.param(("file written", "restarted"), marks=pytest.mark.variant("two more of these moments")),
    ],
    ids=lambda moments: ", ".join(moments),
)
def test_a_killed_roll_goes_on_and_repeats_and_skips_nothing(rolls: Rolls, moments: tuple[str, ...]) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    for moment in moments:
        rolls.append()
        rolls.kill(moment, "apply", plan)
        assert max(rolls.more_starts(before).values()) <= 1, f"a worker was restarted again before: {moment}"
    rolls.append()
    report = json.loads(rolls.run("apply", plan, "--json"))

    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)
    assert [worker["mode"] for worker in report["workers"]] == [target, target]
    record = rolls.journal().last_of(plan)
    assert record is not None
    assert (record.rollout_id, record.state) == (report["rollout_id"], RolloutState.DONE)
    assert rolls.missing() == set()


@pytest.mark.variant("the same by threads in tests/faults/test_two_controllers.py")
def test_rolls_that_were_suspended_past_their_leases_touch_nothing_more(rolls: Rolls) -> None:
    """But for one window, which stays open: microseconds between the permission and the signal to the worker.

    There one restart may follow. The worker runs on, by the file as it is.
    """
    target, plan = rolls.plan()
    rolls.append()
    before = rolls.starts()
    suspended = []
    for moment in ("announced", "file written", "stopped", "gate polled", "passed", "permitted"):
        suspended.append(rolls.start(moment, "SIGSTOP", "apply", plan, *LEASE))
        rolls.stopped(suspended[-1])
        wait_until_lease_is_over(rolls)

    rolls.run("apply", plan)
    pids, starts, files = rolls.pids(), rolls.starts(), seen.files(rolls.lab)
    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)

    *fenced, permitted = suspended
    for process in fenced:
        process.send_signal(signal.SIGCONT)
        rolls.end_of(process, FENCED)
        assert (rolls.pids(), rolls.starts(), seen.files(rolls.lab)) == (pids, starts, files)

    permitted.send_signal(signal.SIGCONT)
    rolls.end_of(permitted, FENCED)
    assert sum(rolls.more_starts(starts).values()) <= 1
    assert seen.files(rolls.lab) == files
    wait_for("every worker runs in the new mode", lambda: rolls.modes() == {target})
    assert rolls.missing() == set()


@pytest.mark.variant("the same by threads in tests/faults/test_two_controllers.py")
def test_who_takes_over_by_force_waits_for_the_act_that_is_under_way(rolls: Rolls) -> None:
    _, plan = rolls.plan()
    with Controller(rolls.lab.cluster()) as other:
        found = other.find_plan(plan)  # which takes a while, and the act's time is short
        # Its lease outlives the start of a further process on a slow machine, so that only force ends it.
        first = rolls.start("file written", "SIGSTOP", "apply", plan, "--lease-seconds", "240", "--stop-grace", "10")
        rolls.stopped(first)
        with pytest.raises(LeaseHeldError, match=f"pid {first.pid}"):
            other.apply(found)
    lease = rolls.journal().lease
    assert lease is not None
    assert lease.acts_until > time.time(), "the test was too slow to see it"  # one machine, so one clock

    rolls.run("apply", plan, "--take-over", "--reason", "pid 1 hangs")

    journal = rolls.journal()
    record = journal.last_of(plan)
    assert record is not None
    (taken_over,) = [e for e in journal.events[record.rollout_id] if "by --take-over" in e.note]
    assert f"taken over from pid {first.pid}" in taken_over.note
    assert taken_over.reason == "pid 1 hangs"
    assert min(s.restarted_after for s in journal.steps[record.rollout_id].values()) >= lease.acts_until
    first.send_signal(signal.SIGCONT)
    rolls.end_of(first, FENCED)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.variant("the same once more"))])
def test_of_two_rolls_that_begin_at_once_one_is_carried_out(rolls: Rolls, number: int) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    both = [rolls.start("never", "SIGKILL", "apply", plan) for _ in range(2)]
    codes = []
    for child in both:
        child.communicate(timeout=DEADLINE_SECONDS)
        codes.append(child.returncode)
    assert 0 in codes
    assert set(codes) <= {0, REFUSED, FENCED, UNREACHABLE}  # the last: of a commit nothing was on record yet
    assert rolls.modes() == {target}
    assert rolls.more_starts(before) == dict.fromkeys(before, 1)


def wait_until_lease_is_over(rolls: Rolls) -> None:
    lease = rolls.journal().lease
    assert lease is not None
    assert identify(lease.owner.pid) is not None, "its owner is dead, so nothing has to run out"
    wait_for("the lease has ended", lambda: time.time() > lease.expires_at)
