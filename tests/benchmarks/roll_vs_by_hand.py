"""One roll by ``eos apply``, gates included, against the same restarts by hand.

Three workers, a file source and a mirror with three tasks. By hand means: change each worker's file, stop it, start it
by its command, wait until every task runs again on a member of the group, and only then go on to the next. A status may
say RUNNING for three seconds before the rebalance that takes the task away, so a careful person looks on for as long as
the gate does; a hasty one goes on at the very moment at which all is well for the first time. Both are measured in one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.hosts.host import Host
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.settings import RolloutSettings
from tests.benchmarks.order_of_restarts import create_connectors, wait_until_whole
from tests.benchmarks.result import Result

#: What a person would wait for after a restart, at most.
WORKER_SECONDS = 180.0


def run(console: Console) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        options = LabOptions(name="by-hand", mode=Mode.DISABLED, root=Path(folder))
        lab = Lab.up(options, lambda line: console.print(f"  {line}", style="dim"))
        try:
            create_connectors(lab)
            observer = Observer(lab.cluster())
            _, baseline = wait_until_whole(observer, Baseline(), time.monotonic() + WORKER_SECONDS)
            careful, hasty = _by_hand(observer, baseline, Mode.PREPARING, console)
            ours = roll(lab, Mode.DISABLED, Path(folder), console)
        finally:
            lab.down()
    what = "one roll of three workers, gates included, against restarting them by hand one after the other"
    return [
        Result("roll_vs_by_hand", ours, careful, "lower", "s", f"{what}, looking on until it is sure"),
        Result("roll_vs_hasty_hand", ours, hasty, "lower", "s", f"{what}, on the first good look"),
    ]


def _by_hand(observer: Observer, baseline: Baseline, mode: Mode, console: Console) -> tuple[float, float]:
    """Seconds with looking on after each restart, and without."""
    careful = hasty = 0.0
    for worker_id, host in observer.hosts.items():
        began = time.monotonic()
        _edit(host, mode)
        host.restart()
        hold_seconds = RolloutSettings().hold(host.observe().properties)
        deadline = time.monotonic() + WORKER_SECONDS
        well_at, _ = wait_until_whole(observer, baseline, deadline, hold_seconds=hold_seconds)
        console.print(f"by hand: {worker_id} restarted, every task runs again after {well_at - began:.1f} s")
        hasty += well_at - began
        careful += time.monotonic() - began
    return careful, hasty


def _edit(host: Host, mode: Mode) -> None:
    digest = host.observe().digest
    assert digest is not None
    host.edit({MODE_PROPERTY: mode}, expect=digest)


def roll(lab: Lab, mode: Mode, folder: Path, console: Console) -> float:
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


def _eos(lab: Lab, folder: Path, *arguments: str) -> str:
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
