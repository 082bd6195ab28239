"""``eos apply`` killed, and stopped, at each moment of a roll of real workers; then somebody goes on."""

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
from airflow_eos_provider.kafka.log import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.processes import identify
from airflow_eos_provider.rollout.journal import JournalContent, read_journal
from airflow_eos_provider.rollout.records import RolloutState, StepStatus
from tests import seen

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("eos_at_a_moment.py")

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, FENCED = 3, 7

#: A lease that a test can wait out; nobody renews it while its owner is stopped.
LEASE = ("--lease-seconds", "20", "--stop-grace", "15")

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
            env={**os.environ, "COLUMNS": "200", "EOS_CLUSTER": str(self.lab.cluster_file)},
        )
        self._children.append(child)
        return child

    def run(self, *arguments: str, expect: int = 0) -> str:
        return self.end_of(self.start("never", "SIGKILL", *arguments), expect)

    def end_of(self, child: subprocess.Popen[str], expect: int) -> str:
        output, errors = child.communicate(timeout=120)
        assert child.returncode == expect, f"exit {child.returncode}, expected {expect}\n{output}\n{errors}"
        return output

    def stopped(self, child: subprocess.Popen[str]) -> None:
        """Return when the process has stopped itself."""
        deadline = time.monotonic() + 120
        while Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
            assert child.poll() is None, f"ended before the moment came: {child.communicate()}"
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.1)

    def plan(self) -> tuple[Mode, str]:
        """A plan to the mode that the workers are not in."""
        target = Mode.DISABLED if self.modes() == {Mode.PREPARING} else Mode.PREPARING
        return target, str(json.loads(self.run("plan", "--to", target, "--json"))["hash"])

    def modes(self) -> set[Mode | None]:
        return seen.modes(self.lab)

    def pids(self) -> dict[str, int]:
        return seen.pids(self.lab)

    def starts(self) -> dict[str, int]:
        return seen.starts(self.lab)

    def journal(self) -> JournalContent:
        return read_journal(self.lab.cluster().kafka, self.lab.group_id)

    def append(self, lines: int = 50) -> None:
        with (self.lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"line {self._lines + n}\n" for n in range(lines))
        self._lines += lines

    def missing(self) -> set[str]:
        """The lines that readers of committed records do not get, after some time."""
        written = {f"line {n}" for n in range(self._lines)}
        deadline = time.monotonic() + 60
        while True:
            records = read_to_end(self.lab.cluster().kafka, "lines").records
            got = {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}
            assert got <= written, "lines that were never written"
            if not written - got or time.monotonic() > deadline:
                return written - got
            time.sleep(0.5)

    def end_all(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.send_signal(signal.SIGCONT)
                child.communicate()


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers with next to no rebalance delay, and a file source."""
    lab = lab_factory(LabOptions(name="steps", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=200))
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
    "moment",
    [
        "begun",
        "announced",
        "file written",
        "stopped",
        "spawned",
        "started",
        "restarted",
        "gate polled",
        "passed",
        "passed#2",
        "ended",
    ],
)
def test_a_killed_roll_goes_on_and_repeats_and_skips_nothing(rolls: Rolls, moment: str) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    rolls.append()

    killed = rolls.start(moment, "SIGKILL", "apply", plan)
    rolls.end_of(killed, -signal.SIGKILL)
    through = passed(rolls.journal(), plan)
    pids = rolls.pids()
    rolls.append()
    report = json.loads(rolls.run("apply", plan, "--json"))

    assert rolls.modes() == {target}
    assert {worker: count - before[worker] for worker, count in rolls.starts().items()} == dict.fromkeys(before, 1)
    assert {worker: rolls.pids()[worker] for worker in through} == {worker: pids[worker] for worker in through}
    assert [worker["mode"] for worker in report["workers"]] == [target, target]
    record = rolls.journal().last_of(plan)
    assert record is not None
    assert (record.rollout_id, record.state) == (report["rollout_id"], RolloutState.DONE)
    assert rolls.missing() == set()


@pytest.mark.parametrize("moment", ["announced", "file written", "stopped", "gate polled", "passed"])
def test_a_roll_that_was_stopped_past_its_lease_touches_nothing_more(rolls: Rolls, moment: str) -> None:
    target, plan = rolls.plan()
    rolls.append()
    before = rolls.starts()
    first = rolls.start(moment, "SIGSTOP", "apply", plan, *LEASE)
    rolls.stopped(first)
    wait_until_lease_is_over(rolls)

    rolls.run("apply", plan)
    pids, starts, files = rolls.pids(), rolls.starts(), seen.files(rolls.lab)
    assert rolls.modes() == {target}
    assert {worker: count - before[worker] for worker, count in starts.items()} == dict.fromkeys(before, 1)

    first.send_signal(signal.SIGCONT)
    rolls.end_of(first, FENCED)
    assert (rolls.pids(), rolls.starts(), seen.files(rolls.lab)) == (pids, starts, files)
    assert rolls.missing() == set()


def test_stopped_between_the_permission_and_the_act_it_costs_one_restart_and_nothing_else(rolls: Rolls) -> None:
    """The one window that stays open: microseconds before the signal. The worker runs on, by the file as it is."""
    target, plan = rolls.plan()
    first = rolls.start("permitted", "SIGSTOP", "apply", plan, *LEASE)
    rolls.stopped(first)
    wait_until_lease_is_over(rolls)
    rolls.run("apply", plan)
    starts = rolls.starts()

    first.send_signal(signal.SIGCONT)
    rolls.end_of(first, FENCED)

    more = {worker: count - starts[worker] for worker, count in rolls.starts().items()}
    assert sum(more.values()) <= 1
    wait_for("every worker runs in the new mode", lambda: rolls.modes() == {target})
    assert rolls.missing() == set()


def test_who_takes_over_by_force_waits_for_the_act_that_is_under_way(rolls: Rolls) -> None:
    _, plan = rolls.plan()
    first = rolls.start("file written", "SIGSTOP", "apply", plan, *LEASE)
    rolls.stopped(first)
    refusal = rolls.start("never", "SIGKILL", "apply", plan)
    rolls.end_of(refusal, REFUSED)
    lease = rolls.journal().lease
    assert lease is not None
    assert lease.acts_until > time.time(), "the test was too slow to see it"

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


@pytest.mark.parametrize("number", range(3))
def test_of_two_rolls_that_begin_at_once_one_is_carried_out(rolls: Rolls, number: int) -> None:
    target, plan = rolls.plan()
    before = rolls.starts()
    both = [rolls.start("never", "SIGKILL", "apply", plan) for _ in range(2)]
    codes = []
    for child in both:
        child.communicate(timeout=120)
        codes.append(child.returncode)
    assert 0 in codes
    assert set(codes) <= {0, REFUSED, FENCED}
    assert rolls.modes() == {target}
    assert {worker: count - before[worker] for worker, count in rolls.starts().items()} == dict.fromkeys(before, 1)


def passed(journal: JournalContent, plan: str) -> set[str]:
    record = journal.last_of(plan)
    steps = journal.steps.get(record.rollout_id, {}).values() if record else ()
    return {step.worker_id for step in steps if step.status is StepStatus.PASSED}


def wait_until_lease_is_over(rolls: Rolls) -> None:
    lease = rolls.journal().lease
    assert lease is not None
    assert identify(lease.owner.pid) is not None, "its owner is dead, so nothing has to run out"
    wait_for("the lease has ended", lambda: time.time() > lease.expires_at)


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)
