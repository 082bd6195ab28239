"""``eos hosts``: check the workers' machines for a roll; print the sudo rules it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    console,
    load_cluster,
    print_lines,
    report_line,
    show_answer,
    show_finding,
    table,
    warn,
    width_for,
)
from airflow_eos_provider.cli.completion import complete_worker
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.output import Output, OutputOption, print_document, print_json
from airflow_eos_provider.rollout.hosts.readiness import Readiness, check_all, check_worker
from airflow_eos_provider.rollout.hosts.sudoers import SudoersFile, sudoers_of

_ANSWERS = {
    Verdict.PASS: "A roll finds what it needs.",
    Verdict.FAIL: "A roll would be refused.",
    Verdict.INCONCLUSIVE: "eos cannot tell whether a roll finds what it needs.",
}

hosts_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Check the machines of the workers for a roll; print the sudo rules it needs.",
)

WorkersOption = Annotated[
    list[str] | None,
    typer.Option("--worker", metavar="HOST:PORT", autocompletion=complete_worker, help="Only this worker. Repeatable."),
]


@hosts_app.command(
    "check",
    epilog=examples(
        "eos hosts check",
        "eos hosts check --worker connect-1:8083",
        "eos hosts check --cluster prod --json",
        "eos hosts check -o wide  # what passed, too",
    ),
)
def check(
    worker: WorkersOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check each worker's machine for what a roll needs. Changes nothing.

    Checks the login, the tools, the clock, sudo, the worker's file, its service, and whether its log proves its mode.

    Exit code: 1 if a check failed, 5 if eos could not run one.
    """
    workers = _chosen(load_cluster(cluster), worker)
    found = check_all(workers, check_worker, _progress)
    document = {"workers": [each.to_dict() for each in found]}
    if not print_document(document, _names(found), output, as_json=as_json):
        _show(found, wide=output is Output.WIDE)
    raise typer.Exit(_verdict(found).exit_code)


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


def _names(found: Iterable[Readiness]) -> list[str]:
    """The workers of which something did not pass."""
    return [each.worker_id for each in found if each.verdict is not Verdict.PASS]


def _progress(done: Readiness) -> None:
    report_line(f"{done.worker_id}: {_summary(done)}")


def _summary(one: Readiness) -> str:
    passed = sum(check.passed for check in one.checks)
    others = [f"{check.subject}: {check.verdict}" for check in one.checks if not check.passed]
    return ", ".join([f"{passed} of {counted(len(one.checks), 'check')} passed", *others])


def _show(found: Sequence[Readiness], *, wide: bool) -> None:
    if wide:
        _show_table(found)
    else:
        for one in found:
            _show_worker(one)
    verdict = _verdict(found)
    ready = sum(one.verdict is Verdict.PASS for one in found)
    show_answer(f"{ready} of {counted(len(found), 'worker')} ready. {_ANSWERS[verdict]}", verdict)


def _show_worker(one: Readiness) -> None:
    where = f"on {one.machine}" if one.machine else "on this machine"
    console.print(Text(f"{one.worker_id}  {where}, {one.kind}", "bold"), soft_wrap=True)
    for each in one.checks:
        show_finding(each, f"  {each.verdict:<14}{each.subject}: ")


def _show_table(found: Sequence[Readiness]) -> None:
    shown = table()
    for column in ("worker", "machine", "check", "answer", "found", "what to do"):
        shown.add_column(column)
    for one in found:
        for each in one.checks:
            where = one.machine or "this one"
            shown.add_row(one.worker_id, where, each.subject, str(each.verdict), each.found, each.remedy)
    with width_for(Output.WIDE):
        console.print(shown)


def _show_what_to_do(files: Sequence[SudoersFile]) -> None:
    if not any(file.sections for file in files):
        warn("no worker's description says sudo, so no rights are needed there")
        return
    warn("nothing was changed; on each machine, as root: visudo -f /etc/sudoers.d/eos, then 'eos hosts check' here")
