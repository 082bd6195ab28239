"""``eos changes``: lists the changes of a group other than rolls; ``close`` is made from its declaration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer

from airflow_eos_provider.cli.common import console, load_cluster, table
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import ChangeRecord

changes_app = typer.Typer(no_args_is_help=True, add_completion=False)


@add_look(changes_app, "list", "eos changes list", "eos changes list -o wide")
def list_(cluster: Path | None) -> Found:
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
    ids = [change.change_id for change in newest_first]
    return Found(document, ids, lambda wide: _show(described.group_id, newest_first, wide=wide))


def _show(group_id: str, changes: Sequence[ChangeRecord], *, wide: bool) -> None:
    if not changes:
        console.print(f"Group {group_id} has no changes other than rolls.")
        return
    columns = ("change", "of", "state", "step", *(("began", "by") if wide else ()), "why")
    shown = table(f"Changes of group {group_id}", *columns, whole="change")
    for change in changes:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.started_at))
        more = (began, change.actor) if wide else ()
        step = change.under_way or (change.done[-1] if change.done else "")
        shown.add_row(change.change_id, change.about, str(change.state), step, *more, change.note or change.reason)
    console.print(shown)
