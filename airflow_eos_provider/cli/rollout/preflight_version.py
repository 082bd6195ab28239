"""``eos preflight --to-version``: checks a downgrade to an older Kafka Connect."""

from __future__ import annotations

import typer

from airflow_eos_provider.cli.common import (
    console,
    print_share_read,
    show_finding,
    table,
    width_for,
)
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.downgrade.look import look_before
from airflow_eos_provider.downgrade.older import DowngradeLook, findings
from airflow_eos_provider.finding import Finding, overall
from airflow_eos_provider.output import Output, print_document
from airflow_eos_provider.stored import to_json


def check_version(described: ConnectCluster, to_version: str, output: Output | None, *, as_json: bool) -> None:
    """Print what workers of an older version would do otherwise; end with 1 if something is found, 5 if unknown."""
    with ConnectSession(described) as session:
        session.on_read = print_share_read
        look = look_before(session, to_version)
    found = findings(look)
    verdict = overall(found)
    document = {
        "group": look.group_id,
        "to_version": to_version,
        "ok": verdict.exit_code == 0,
        "workers": [
            {"worker": one.worker_id, "version": one.version, "exactly_once": one.exactly_once} for one in look.workers
        ],
        "copies": to_json(look.copies),
        "findings": [one.to_dict() for one in found],
    }
    if not print_document(document, [one.subject for one in found], output, as_json=as_json):
        with width_for(output):
            _show(look, found)
    raise typer.Exit(verdict.exit_code)


def _show(look: DowngradeLook, found: list[Finding]) -> None:
    shown = table(f"{look.group_id}: to Kafka Connect {look.to_version}")
    for column in ("worker", "runs", "exactly-once"):
        shown.add_column(column, overflow="fold")
    words = {True: "yes", False: "no", None: "unknown"}
    for worker in look.workers:
        shown.add_row(worker.worker_id, worker.version or "no answer", words[worker.exactly_once])
    console.print(shown)
    if not look.is_before_kip_618:
        console.print(f"Kafka Connect {look.to_version} knows exactly-once source support: modes and own topics stay.")
    for one in found:
        show_finding(one, f"{one.kind}: {one.subject}: ")
    if all(one.passed for one in found):
        console.print("As far as eos can see, nothing is lost, delivered again, or fails.")
