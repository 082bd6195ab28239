"""``eos uninstall``: shows and removes what this package has left of a group."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    actor,
    console,
    load_cluster,
    report_line,
)
from airflow_eos_provider.cli.confirm import PlanOption
from airflow_eos_provider.cli.intervals import GroupOption
from airflow_eos_provider.cli.plan_apply import PLANS_FOLDER
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.footprint.uninstall import Uninstaller, UninstallPlan
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.output import OutputOption, print_document


def uninstall(
    plan: PlanOption = None,
    ledgers: Annotated[
        bool,
        typer.Option(
            "--ledgers",
            help="Also the interval runs' control topic and ledgers: eos then no longer knows which intervals are "
            "complete, and would deliver them again.",
        ),
    ] = False,
    group: GroupOption = DEFAULT_GROUP_ID,
    cluster: ClusterOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what this package has left of a group, in Kafka and in files; with --plan, remove it.

    Removes the group's journal, backups of workers' files, leftovers of killed commands next to them, and the plans
    shown in this directory. Never touches Connect's own topics. Refused while a roll, a change or a restart is running
    or unfinished; with --ledgers also while an interval run is.
    """
    with ConnectSession(load_cluster(cluster)) as session:
        uninstaller = Uninstaller(session, group, ledgers=ledgers, plans_folder=PLANS_FOLDER)
        made = uninstaller.plan()
        if plan is not None:
            made.require(plan)
            group_id = session.cluster.group_id
            journal = change_journal(session.kafka, group_id, actor=actor(), report=report_line)
            uninstaller.apply(made, journal, report_line)
    document = {**made.to_dict(), "applied": plan is not None}
    if not print_document(document, [item.name for item in made.removes], output, as_json=as_json):
        _show(made, _again(made, cluster, group, ledgers=ledgers), applied=plan is not None)


def _again(plan: UninstallPlan, cluster: Path | None, group: str, *, ledgers: bool) -> str:
    """The command that carries a plan out, with what this one was given."""
    words = ["eos", "uninstall", "--plan", plan.short_hash]
    words += ["--ledgers"] * ledgers
    words += ["--group", group] if group != DEFAULT_GROUP_ID else []
    words += ["--cluster", str(cluster)] if cluster is not None else []
    return shlex.join(words)


def _show(plan: UninstallPlan, command: str, *, applied: bool) -> None:
    for line in plan.lines():
        console.print(line, style={"-": "red"}.get(line[0]), soft_wrap=True, highlight=False)
    if not plan.removes:
        console.print("Nothing to do.")
    elif applied:
        console.print("Done.")
    else:
        console.print("Nothing is removed yet.")
        console.print(f"To do it:  {command}", style="bold", soft_wrap=True)
