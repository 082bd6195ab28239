"""One roll of three systemd units over SSH, by ``eos apply``, against the same roll of three processes of this machine.

Both labs are up all the time and are rolled in turns, so that what else the machine does meets both. Each has a file
source and a mirror with three tasks. The looks before, the restarts and the gates are in the time; the start of ``eos``
is, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.benchmarks.order_of_restarts import create_connectors, wait_until_whole
from tests.benchmarks.result import Result, own_lab
from tests.lab.lab import TestLab

#: For the connectors' tasks to run.
WORKER_SECONDS = 180.0

#: There and back.
ROLLS = (Mode.PREPARING, Mode.DISABLED)


def run(console: Console) -> list[Result]:
    with own_lab("over-ssh", workers=3, machines=3) as over_ssh, own_lab("local", workers=3) as local:
        up = {"over SSH": over_ssh, "local": local}
        for lab in up.values():
            create_connectors(lab)
            with Observer(lab.cluster()) as observer:
                wait_until_whole(observer, Baseline(), time.monotonic() + WORKER_SECONDS)
        seconds: dict[str, list[float]] = {what: [] for what in up}
        turns = list(up.items())
        for mode in ROLLS:
            for what, lab in turns:
                seconds[what].append(_roll(lab, mode, lab.options.root, console))
                console.print(f"{what}, to {mode}: {seconds[what][-1]:.1f} s")
            turns.reverse()
        ours, peer = (sum(seconds[what]) / len(ROLLS) for what in ("over SSH", "local"))
    what = "one roll of three systemd units over SSH, gates included, against three processes of this machine"
    return [Result("roll_ssh_vs_local", ours, peer, "lower", "s", what)]


def _roll(lab: TestLab, mode: Mode, folder: Path, console: Console) -> float:
    """Seconds of one roll by ``eos apply``; its plan is made before."""
    plan = json.loads(_eos(lab, folder, "plan", "--to", mode, "--json"))["hash"]
    began = time.monotonic()
    report = json.loads(_eos(lab, folder, "apply", "--plan", plan, "--json"))["report"]
    seconds = time.monotonic() - began
    for worker in report["workers"]:
        console.print(
            f"eos apply: {worker['worker']} through its gate: {worker['seconds']:.1f} s; task downtime "
            f"{worker['task_downtime_seconds']:.1f} s, predicted {worker['predicted_seconds']:.1f} s"
        )
    return seconds


def _eos(lab: TestLab, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "airflow_eos_provider.cli", *arguments],
        cwd=folder,
        env={**os.environ, "EOS_CLUSTER": str(lab.cluster_file)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"eos {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout
