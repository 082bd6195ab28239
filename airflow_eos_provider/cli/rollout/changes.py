"""``eos changes``: lists the changes of a group other than rolls, and closes an unfinished one, or a roll."""

from __future__ import annotations

import time

import typer

from airflow_eos_provider.changes.closing.change import CLOSE
from airflow_eos_provider.cli.change import add_apply
from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    console,
    load_cluster,
    table,
    width_for,
)
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.output import Output, OutputOption, print_document

changes_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Changes of a group other than rolls, e.g. of offsets: list them; close one, or a roll.",
)


@changes_app.command("list", epilog=examples("eos changes list", "eos changes list -o wide"))
def list_(cluster: ClusterOption = None, output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Show every change of the group that is no roll, the newest first. Changes nothing."""
    described = load_cluster(cluster)
    found = read_journal(described.kafka, described.group_id).changes.values()
    newest_first = sorted(found, key=lambda change: change.started_at, reverse=True)
    document = [
        {
            "change_id": change.change_id,
            "kind": change.kind,
            "about": change.about,
            "state": str(change.state),
            "under_way": change.under_way,
            "done": list(change.done),
            "plan": change.plan.get("hash"),
            "started_at": change.started_at,
            "actor": change.actor,
            "reason": change.reason,
            "note": change.note,
        }
        for change in newest_first
    ]
    if print_document(document, [change.change_id for change in newest_first], output, as_json=as_json):
        return
    if not newest_first:
        console.print(f"Group {described.group_id} has no changes other than rolls.")
        return
    wide = output is Output.WIDE
    shown = table(f"Changes of group {described.group_id}")
    for column in ("change", "of", "state", "step", *(("began", "by") if wide else ()), "why"):
        shown.add_column(column, overflow="fold", no_wrap=column == "change")
    for change in newest_first:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.started_at))
        more = (began, change.actor) if wide else ()
        step = change.under_way or (change.done[-1] if change.done else "")
        shown.add_row(change.change_id, change.about, str(change.state), step, *more, change.note or change.reason)
    with width_for(output):
        console.print(shown)


add_apply(changes_app, CLOSE)
