"""``eos topics``: lists, checks, creates and fixes a group's internal topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from airflow_eos_provider.changes.change import read_request
from airflow_eos_provider.changes.topics.change import TopicsRequest
from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
from airflow_eos_provider.cli.cluster.topics_list import list_
from airflow_eos_provider.cli.common import console, load_cluster, show_finding, table
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.topics.topic_checks import CLEANUP, IN_SYNC, TopicsLook, findings
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.finding import Finding, Verdict, overall

topics_app = typer.Typer(no_args_is_help=True, add_completion=False)


add_look(topics_app, "list", "eos topics list", "eos topics list -o json")(list_)


@add_look(topics_app, "check", "eos topics check", "eos topics check --cluster prod --json", request=TopicsRequest)
def check(cluster: Path | None, **given: Any) -> Found:
    """Check the three internal topics and every connector's own. Changes nothing; exit code 1 if a check fails.

    Checks that they exist and are only compacted; their partitions, replicas and settings against the workers' files
    and the brokers; and whether others write to them. Own topics in other Kafka clusters are checked there. Exit code 5
    if own topics are unknown, because no worker or no broker of such a cluster answers; 3 if one is refused.
    """
    request = read_request(TopicsRequest, given)
    with ConnectSession(load_cluster(cluster)) as session:
        client = InternalTopicsClient(session, **asdict(request))
        look = client.look()
    found = findings(look)
    answer = Found(look.to_dict(), [one.subject for one in found], lambda wide: _show(look, found))
    errors = [error for error in (client.unreachable, *client.unknown.values()) if error is not None]
    if found or not errors:
        return replace(answer, exit_code=overall(found).exit_code)
    refused = (error for error in errors if not isinstance(error, UnreachableError))
    return replace(answer, exit_code=Verdict.INCONCLUSIVE.exit_code, error=next(refused, None))


def _show(look: TopicsLook, problems: Sequence[Finding]) -> None:
    columns = ("topic", "what", "partitions", "replicas", "min in sync", CLEANUP)
    shown = table(f"Internal topics of {look.group_id}", *columns, whole="topic")
    for wanted in look.wanted:
        found = look.found.get(wanted.name)
        cells = (
            [Text("missing", "yellow")]
            if found is None
            else [str(found.partitions), str(found.replicas), found.settings.get(IN_SYNC), found.settings.get(CLEANUP)]
        )
        shown.add_row(wanted.name, wanted.use, *cells)
    console.print(shown)
    for one in problems:
        show_finding(one)
    for what in look.not_checked:
        console.print(Text(f"Not checked: {what.rstrip('.')}.", "dim"), soft_wrap=True)
