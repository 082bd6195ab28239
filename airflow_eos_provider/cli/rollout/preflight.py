"""``eos preflight``: what a mode does to each connector, or an older Kafka Connect, before it is switched on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    accept_option,
    console,
    load_cluster,
    print_over,
    print_share_read,
    show_answer,
    show_finding,
    table,
    timeout_option,
    warn,
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.look import Found, look_command
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.downgrade.downgrade_state import look_before
from airflow_eos_provider.downgrade.older import DowngradeLook, findings as downgrade_findings
from airflow_eos_provider.finding import Finding, Verdict, overall
from airflow_eos_provider.preflight.collect_facts import Scope, look
from airflow_eos_provider.preflight.findings import ConnectorFinding
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.stored import to_json

#: A validation may wait for the system that a connector reads, seconds.
ANSWER_SECONDS = 30.0

_STYLES = {"blocks": "bold red", "not known": "yellow", "warns": "yellow"}

_ANSWERS = {
    Verdict.PASS: "Nothing blocks.",
    Verdict.FAIL: "Something blocks.",
    Verdict.INCONCLUSIVE: "eos cannot tell whether something blocks.",
}


def find(
    cluster: Path | None,
    connectors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONNECTOR…]", autocompletion=complete_connector, help="Check these only. Default: all."
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option("--mode", metavar="MODE", help="Check for this mode.")] = Mode.ENABLED,
    to_version: Annotated[
        str | None,
        typer.Option("--to-version", metavar="VERSION", help="Check a downgrade to this older Kafka Connect instead."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        accept_option("CONNECTOR/KIND", "Ignore this finding."),
    ] = None,
    timeout: Annotated[float, timeout_option("Time limit of all requests to the workers.")] = 300.0,
) -> Found:
    """Check what exactly-once does to each connector, or what an older Kafka Connect would do. Changes nothing.

    Each worker validates each connector's configuration; its plugin may contact the system that it reads.

    Exit code: 1 if something blocks, 5 if eos cannot tell. With --to-version: 1 if records would be lost or delivered
    again, or tasks would fail.
    """
    if to_version is not None:
        return check_version(load_cluster(cluster), to_version)
    scope = Scope(tuple(connectors or ()), timeout)
    with ConnectSession(load_cluster(cluster), answer_seconds=ANSWER_SECONDS) as session:
        report = Report.of(look(session, mode, scope, _progress), accept or ())
    for key in report.unused:
        warn(f"{key} is accepted, and is no finding")
    return Found(
        report.to_dict(), _names(report), lambda wide: _show(report, wide=wide), exit_code=report.verdict.exit_code
    )


preflight = look_command(find)


def _progress(done: int, total: int) -> None:
    print_over(f"{done} of {total} questions to workers are answered" if done < total else "")


def _names(report: Report) -> list[str]:
    """The connectors about which something blocks or may block, each once."""
    counted = [one for one in report.open if one.key not in report.accepted]
    return list(dict.fromkeys(one.subject for one in counted if (one.blocks or one.may_block) and one.subject))


def _show(report: Report, *, wide: bool) -> None:
    if wide:
        _show_table(report)
    else:
        for name in ("", *report.sources, *report.sinks):
            _show_connector(name, [one for one in report.of_connector(name) if not one.passed], report)
    if report.sinks:
        console.print(f"Out of scope, since they are sinks: {', '.join(report.sinks)}", soft_wrap=True)
    show_answer(f"{report.summary()} {_ANSWERS[report.verdict]}", report.verdict)


def _show_connector(name: str, findings: list[ConnectorFinding], report: Report) -> None:
    if not findings:
        if name in report.sources:
            console.print(f"{name}: nothing found", soft_wrap=True)
        return
    console.print(name or "All source connectors", style="bold", soft_wrap=True)
    for one in findings:
        weight = "accepted" if one.key in report.accepted else one.weight
        show_finding(one, f"  {weight:<10}{one.kind}: ", _STYLES.get(weight, ""))


def _show_table(report: Report) -> None:
    shown = table()
    for column in ("connector", "answer", "weight", "finding", "found", "expected", "what to do", "seen in"):
        shown.add_column(column)
    for one in report.findings:
        weight = "accepted" if one.key in report.accepted else str(one.severity)
        cells = (str(one.verdict), "" if one.passed else weight, one.kind, one.found, one.expected)
        shown.add_row(one.subject or "all", *cells, one.remedy, one.evidence)
    console.print(shown)


def check_version(described: ConnectCluster, to_version: str) -> Found:
    """What workers of an older version would do otherwise; exit code 1 if something is found, 5 if unknown."""
    with ConnectSession(described) as session:
        session.on_read = print_share_read
        seen = look_before(session, to_version)
    found = downgrade_findings(seen)
    verdict = overall(found)
    document = {
        "group": seen.group_id,
        "to_version": to_version,
        "ok": verdict.exit_code == 0,
        "workers": [
            {"worker": one.worker_id, "version": one.version, "exactly_once": one.exactly_once} for one in seen.workers
        ],
        "copies": to_json(seen.copies),
        "findings": [one.to_dict() for one in found],
    }
    names = [one.subject for one in found]
    return Found(document, names, lambda wide: _show_downgrade(seen, found), exit_code=verdict.exit_code)


def _show_downgrade(seen: DowngradeLook, found: list[Finding]) -> None:
    shown = table(f"{seen.group_id}: to Kafka Connect {seen.to_version}")
    for column in ("worker", "runs", "exactly-once"):
        shown.add_column(column, overflow="fold")
    words = {True: "yes", False: "no", None: "unknown"}
    for worker in seen.workers:
        shown.add_row(worker.worker_id, worker.version or "no answer", words[worker.exactly_once])
    console.print(shown)
    if not seen.is_before_kip_618:
        console.print(f"Kafka Connect {seen.to_version} knows exactly-once source support: modes and own topics stay.")
    for one in found:
        show_finding(one, f"{one.kind}: {one.subject}: ")
    if all(one.passed for one in found):
        console.print("As far as eos can see, nothing is lost, delivered again, or fails.")
