"""``eos hosts``: check the workers' machines for a roll; print the sudo rules it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    load_cluster,
    print_lines,
    report_line,
    show_answer,
    show_checks,
    warn,
)
from airflow_eos_provider.cli.completion import complete_worker
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.output import print_json
from airflow_eos_provider.rollout.hosts.readiness import Readiness, check_all, check_worker
from airflow_eos_provider.rollout.hosts.sudoers import SudoersFile, sudoers_of

_ANSWERS = {
    Verdict.PASS: "A roll finds what it needs.",
    Verdict.FAIL: "A roll would be refused.",
    Verdict.INCONCLUSIVE: "eos cannot tell whether a roll finds what it needs.",
}

hosts_app = typer.Typer(no_args_is_help=True, add_completion=False)

WorkersOption = Annotated[
    list[str] | None,
    typer.Option("--worker", metavar="HOST:PORT", autocompletion=complete_worker, help="Only this worker. Repeatable."),
]


@add_look(
    hosts_app,
    "check",
    "eos hosts check",
    "eos hosts check --worker connect-1:8083",
    "eos hosts check --cluster prod --json",
    "eos hosts check -o wide  # what passed, too",
)
def check(cluster: Path | None, worker: WorkersOption = None) -> Found:
    """Check each worker's machine for what a roll needs. Changes nothing.

    Checks the login, the tools, the clock, sudo, the worker's file, its service, and whether its log proves its mode.

    Exit code: 1 if a check failed, 5 if eos could not run one.
    """
    found = check_all(_chosen(load_cluster(cluster), worker), check_worker, _progress)
    document = {"workers": [each.to_dict() for each in found]}
    lacking = [each.worker_id for each in found if each.verdict is not Verdict.PASS]
    return Found(document, lacking, partial(_show, found), _verdict(found).exit_code)


@hosts_app.command(
    "sudoers",
    epilog=examples(
        "eos hosts sudoers",
        "eos hosts sudoers --worker connect-1:8083 > eos.sudoers",
        "visudo -c -f eos.sudoers  # then, on the machine: visudo -f /etc/sudoers.d/eos",
    ),
)
def sudoers(worker: WorkersOption = None, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """Print a sudoers file for each machine: it allows only the commands of a roll. Changes nothing.

    eos looks on the machines for the paths of programs and the owners of files. If it cannot reach one, the file says
    what was assumed. Install each file there with 'visudo -f /etc/sudoers.d/eos'.
    """
    workers = _chosen(load_cluster(cluster), worker)
    files = sudoers_of(workers)
    if as_json:
        print_json([file.to_dict() for file in files])
        return
    for file in files:
        print_lines(file.text())
    _show_what_to_do(files)


def _verdict(found: Iterable[Readiness]) -> Verdict:
    return overall(check for each in found for check in each.checks)


def _chosen(cluster: ConnectCluster, names: Sequence[str] | None) -> list[WorkerDescription]:
    return [cluster.worker(name) for name in dict.fromkeys(names)] if names else list(cluster.workers)


def _progress(done: Readiness) -> None:
    report_line(f"{done.worker_id}: {_summary(done)}")


def _summary(one: Readiness) -> str:
    passed = sum(check.passed for check in one.checks)
    others = [f"{check.subject}: {check.verdict}" for check in one.checks if not check.passed]
    return ", ".join([f"{passed} of {counted(len(one.checks), 'check')} passed", *others])


def _show(found: Sequence[Readiness], wide: bool) -> None:
    checked = [
        (one.worker_id, f"{one.machine or 'this machine'}, {one.kind}", each.subject, each)
        for one in found
        for each in one.checks
    ]
    show_checks(("worker", "machine"), checked, wide=wide)
    verdict = _verdict(found)
    ready = sum(one.verdict is Verdict.PASS for one in found)
    show_answer(f"{ready} of {counted(len(found), 'worker')} ready. {_ANSWERS[verdict]}", verdict)


def _show_what_to_do(files: Sequence[SudoersFile]) -> None:
    if not any(file.sections for file in files):
        warn("no worker's description says sudo, so no rights are needed there")
        return
    warn("nothing was changed; on each machine, as root: visudo -f /etc/sudoers.d/eos, then 'eos hosts check' here")
