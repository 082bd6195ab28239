"""One roll of three systemd units over SSH, by ``eos apply``, against the same roll of three processes of this machine.

Both labs are up all the time and are rolled in turns, so that what else the machine does meets both. Each has a file
source and a mirror with three tasks. The looks before, the restarts and the gates are in the time; the start of ``eos``
is, too.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.benchmarks.order_of_restarts import create_connectors, wait_until_whole
from tests.benchmarks.result import Result
from tests.benchmarks.roll_vs_by_hand import WORKER_SECONDS, roll
from tests.lab.lab import TestLab, TestLabOptions

#: There and back.
ROLLS = (Mode.PREPARING, Mode.DISABLED)


def run(console: Console) -> list[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        labs = {
            "over SSH": TestLabOptions(name="over-ssh", mode=Mode.DISABLED, root=folder, machines=3),
            "local": TestLabOptions(name="local", mode=Mode.DISABLED, root=folder, workers=3),
        }
        up = {what: _lab(options, console, stack) for what, options in labs.items()}
        seconds: dict[str, list[float]] = {what: [] for what in up}
        turns = list(up.items())
        for mode in ROLLS:
            for what, lab in turns:
                seconds[what].append(roll(lab, mode, folder, console))
                console.print(f"{what}, to {mode}: {seconds[what][-1]:.1f} s")
            turns.reverse()
        ours, peer = (sum(seconds[what]) / len(ROLLS) for what in ("over SSH", "local"))
    what = "one roll of three systemd units over SSH, gates included, against three processes of this machine"
    return [Result("roll_ssh_vs_local", ours, peer, "lower", "s", what)]


def _lab(options: TestLabOptions, console: Console, stack: ExitStack) -> TestLab:
    """A lab with connectors that run."""
    lab = TestLab.up(options, lambda line: console.print(f"  {line}", style="dim"))
    stack.callback(lab.down)
    create_connectors(lab)
    with Observer(lab.cluster()) as observer:
        wait_until_whole(observer, Baseline(), time.monotonic() + WORKER_SECONDS)
    return lab
