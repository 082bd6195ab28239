"""Rolls there and back under load, with whoever takes part killed at random.

Minutes, so only on request: ``EOS_SOAK_ROLLS=20 pytest -n0 -s tests/integration/test_soak.py``; ``EOS_TEST_SEED``
repeats one. Kills at chosen points are in ``test_roll.py`` and ``tests/faults/test_roll_steps.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import StepStatus
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.seen import modes
from tests.waiting import until

ROLLS = int(os.environ.get("EOS_SOAK_ROLLS", "20"))

pytestmark = [pytest.mark.by_name, pytest.mark.timeout(600 + 300 * ROLLS)]

#: Up in two rolls, back in one.
WAY = (Mode.PREPARING, Mode.ENABLED, Mode.DISABLED)

#: How often a roll to one mode is begun again, as an operator would.
TRIES = 6


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(
        LabOptions(name="soak", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    )


class Soak:
    """Rolls of one lab, and kills in them."""

    def __init__(self, lab: Lab, eos: Any, chance: random.Random) -> None:
        self.lab, self._eos, self._chance = lab, eos, chance
        self.kills: Counter[str] = Counter()

    def roll(self, target: Mode) -> None:
        """Bring all workers into a mode; in the first try a process is killed."""
        for attempt in range(TRIES):
            self._start_missing()
            planned = self._eos.start("plan", "--to", target, "--json")
            output, errors = planned.communicate(timeout=240)
            if planned.returncode == 0 and modes(self.lab) == {target}:
                return
            if planned.returncode == 0:
                plan = str(json.loads(output)["hash"])
                if self._apply(plan, kill=attempt == 0) == 0 and modes(self.lab) == {target}:
                    return
            else:
                # Not well yet, after a kill: refused, or not known.
                assert planned.returncode in (3, 5), f"{output}\n{errors}"
                time.sleep(1)
        raise AssertionError(f"not in {target} after {TRIES} tries: {modes(self.lab)}")

    def kill_a_worker(self) -> None:
        self._kill_worker(self._chance.randrange(len(self.lab.workers)))
        self._start_missing()

    def _apply(self, plan: str, *, kill: bool) -> int:
        process = self._eos.start("apply", "--plan", plan)
        try:
            if kill:
                self._kill_someone(process)
            process.communicate(timeout=400)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return int(process.returncode)

    def _kill_someone(self, apply: subprocess.Popen[str]) -> None:
        victim = self._chance.choice(["apply", "worker", "nobody"])
        try:
            apply.wait(timeout=self._chance.uniform(1, 12))
            victim = "nobody"  # the roll is over already
        except subprocess.TimeoutExpired:
            pass
        if victim == "apply":
            apply.send_signal(signal.SIGKILL)
            self.kills["eos apply"] += 1
        elif victim == "worker":
            others = [index for index in range(len(self.lab.workers)) if self._name(index) not in self._under_way()]
            self._kill_worker(self._chance.choice(others or [0]))
            self._start_what_the_roll_leaves_down()

    def _under_way(self) -> set[str]:
        """Workers that the roll restarts at this moment: one that is started twice would have to share its port."""
        steps = read_journal(self.lab.cluster().kafka, self.lab.group_id).steps
        return {s.worker_id for of_one in steps.values() for s in of_one.values() if s.status is not StepStatus.PASSED}

    def _name(self, index: int) -> str:
        return self.lab.cluster().workers[index].worker_id

    def _kill_worker(self, index: int) -> None:
        process = self.lab.worker_process(index)
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            leads = Observer(self.lab.cluster()).observe().leader_id == self._name(index)
            self.kills["leading worker" if leads else "worker"] += 1

    def _start_missing(self) -> None:
        """As a supervisor would, while no roll is under way; returns when all are healthy.

        A restart that a killed roll has begun outlives it, and ends first.
        """
        for index, worker in enumerate(self.lab.cluster().workers):
            deadline = time.monotonic() + 600
            while host_of(worker).observe().restart is not None:
                assert time.monotonic() < deadline, f"the restart of {self._name(index)} does not end"
                time.sleep(0.1)
            self.lab.start_worker(index)

    def _start_what_the_roll_leaves_down(self) -> None:
        """The same beside a roll, which may restart the worker meanwhile: so nobody waits for it to be healthy."""
        for index in range(len(self.lab.workers)):
            if self._name(index) not in self._under_way():
                self.lab.start_worker(index, wait=False)


def test_rolls_under_load_with_kills_lose_nothing_and_double_nothing_while_enabled(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], load_on: Callable[[Lab, str], Any], tmp_path: Path, seed: int
) -> None:
    sys.stderr.write(f"{ROLLS} rolls\n")
    soak = Soak(lab, eos_of(lab, tmp_path), random.Random(seed))
    enabled: list[tuple[int, int]] = []
    with load_on(lab, "soak") as load:
        for number, target in enumerate(islice(cycle(WAY), ROLLS), 1):
            began = time.monotonic()
            soak.roll(target)
            if target is Mode.ENABLED:
                since = _now_ms()
                soak.kill_a_worker()
                seen = load.delivered()
                until(lambda seen=seen: load.delivered() > seen + 20, "records after a kill", seconds=150)  # type: ignore[misc]
                enabled.append((since, _now_ms()))
            took = time.monotonic() - began
            sys.stderr.write(f"roll {number} of {ROLLS} to {target}: {took:.0f} s, kills so far {dict(soak.kills)}\n")
        comparison = load.compared()
    assert comparison.nothing_missing, comparison
    copies = Counter(
        (window, record.value)
        for record in read_to_end(lab.cluster().kafka, "soak").records
        for window in enabled
        if window[0] <= record.timestamp_ms <= window[1]
    )
    assert copies, "nothing was written while enabled"
    assert [double for double, count in copies.items() if count > 1] == []


def _now_ms() -> int:
    return int(time.time() * 1000)
