"""``eos drift``: changes in a cluster since the last rollout."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ExitCodeOption,
    accept_option,
    load_cluster,
    print_lines,
    progress_console,
    show_answer,
    watch_option,
)
from airflow_eos_provider.cli.look import Found, look_command
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.rollout.drift.drift import Drift
from airflow_eos_provider.rollout.drift.watch import DriftWatch

ModeOption = Annotated[
    Mode | None,
    typer.Option("--mode", metavar="MODE", help="Expect this mode. Default: the mode of the last rollout."),
]
AcceptOption = Annotated[
    list[str] | None,
    accept_option("SHA256", "Accept a worker's file with this digest, though no rollout wrote it."),
]
WatchOption = Annotated[float | None, watch_option("Check this often until there is a finding.")]


def find(
    cluster: Path | None,
    mode: ModeOption = None,
    accept: AcceptOption = None,
    watch: WatchOption = None,
    exit_code: ExitCodeOption = False,
) -> Found:
    """Show changes since the last roll: modes, members, files. Changes nothing.

    Exit code with --exit-code: 1 if something has changed, 5 if eos cannot tell.
    """
    with DriftWatch(load_cluster(cluster), mode=mode, accept=accept or ()) as watcher:
        found = watcher.look()
        while watch is not None and found.verdict is not Verdict.FAIL:
            print_lines(f"{_clock(found.at)} {found.describe()}", on=progress_console)
            time.sleep(watch)
            found = watcher.look()
    code = found.verdict.exit_code if exit_code else 0
    return Found(found.to_dict(), _drifted(found), lambda wide: show_answer(found.describe(), found.verdict), code)


drift = look_command(find)


def _drifted(found: Drift) -> list[str]:
    """The workers and the rollout that the findings are about, each once; the group where one is about all workers."""
    subjects = (finding.subject or found.group_id for finding in found.findings)
    return list(dict.fromkeys(name for subject in subjects for name in subject.split(", ")))


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
