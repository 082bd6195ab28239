"""``eos transactions audit``: finds transactions that block readers, ids about to expire, and conflicts of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import load_cluster, show_answer
from airflow_eos_provider.cli.exactly_once.transactions_watch import TopicsOption
from airflow_eos_provider.cli.look import Found
from airflow_eos_provider.transactions.audit import DEFAULT_LIMITS, Limits
from airflow_eos_provider.transactions.auditor import Auditor


def audit_(
    cluster: Path | None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--beside",
            metavar="NAME|PATH",
            help="Another Connect cluster of the same Kafka cluster, with its topics in its workers' files; may be "
            "repeated.",
        ),
    ] = None,
    topics: TopicsOption = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            "--longer-than", min=0.0, metavar="SECONDS", help="Open for longer is a finding. Default: its timeout."
        ),
    ] = None,
    idle_part: Annotated[
        float,
        typer.Option(
            "--idle-part", min=0.01, max=1.0, help="Warn after this part of transactional.id.expiration.ms without use."
        ),
    ] = DEFAULT_LIMITS.idle_part,
    days_before: Annotated[
        float,
        typer.Option(
            "--days-before",
            min=0.0,
            help="Or this many days before it ends, whichever comes first; never in its first half.",
        ),
    ] = DEFAULT_LIMITS.days_before,
) -> Found:
    """Look for hanging and overdue transactions, lost markers, ids near their expiration, collisions. Changes nothing.

    On the whole Kafka cluster; for ids near their expiration, only this group's tasks. --topic limits the search for
    hanging transactions, for example to topics that you may read. Exit code 1 if something is found, or 5 if something
    could not be checked.
    """
    limits = Limits(longer_than, idle_part, days_before)
    others = [load_cluster(each) for each in beside or ()]
    with Auditor(load_cluster(cluster), beside=others, topics=topics or (), limits=limits) as auditor:
        found = auditor.look()
    names = list(dict.fromkeys(finding.subject for finding in found.findings))
    verdict = found.verdict
    return Found(found.to_dict(), names, lambda wide: show_answer(found.describe(), verdict), verdict.exit_code)
