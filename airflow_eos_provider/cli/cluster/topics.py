"""``eos topics``: lists, checks, creates and fixes a group's internal topics."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from airflow_eos_provider.changes.change import read_request
from airflow_eos_provider.changes.topics.change import CREATE_TOPICS, TopicsRequest
from airflow_eos_provider.changes.topics.look import InternalTopicsClient
from airflow_eos_provider.cli.change import add_apply, with_options
from airflow_eos_provider.cli.cluster.topics_list import list_
from airflow_eos_provider.cli.common import console, load_cluster, show_finding, table, width_for
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.topic_checks import CLEANUP, IN_SYNC, TopicsLook, findings
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.output import Output, print_document

topics_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Internal topics of the group: list, check and create them.",
)


def check(*, cluster: Path | None, output: Output | None, as_json: bool, **given: Any) -> None:
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
    if not print_document(look.to_dict(), [one.subject for one in found], output, as_json=as_json):
        with width_for(output):
            _show(look)
            for one in found:
                show_finding(one)
            _show_not_checked(look)
    if found:
        raise typer.Exit(overall(found).exit_code)
    errors = [error for error in (client.unreachable, *client.unknown.values()) if error is not None]
    for error in errors:
        if not isinstance(error, UnreachableError):
            raise error
    if errors:
        raise typer.Exit(Verdict.INCONCLUSIVE.exit_code)


topics_app.command("list", epilog=examples("eos topics list", "eos topics list -o json"))(list_)
topics_app.command("check", epilog=examples("eos topics check", "eos topics check --cluster prod --json"))(
    with_options(check, TopicsRequest)
)
add_apply(topics_app, CREATE_TOPICS)


def _show(look: TopicsLook) -> None:
    shown = table(f"Internal topics of {look.group_id}")
    for column in ("topic", "what", "partitions", "replicas", "min in sync", CLEANUP):
        shown.add_column(column, no_wrap=column == "topic")
    for wanted in look.wanted:
        found = look.found.get(wanted.name)
        cells = (
            [Text("missing", "yellow")]
            if found is None
            else [str(found.partitions), str(found.replicas), found.settings.get(IN_SYNC), found.settings.get(CLEANUP)]
        )
        shown.add_row(wanted.name, wanted.use, *cells)
    console.print(shown)


def _show_not_checked(look: TopicsLook) -> None:
    for what in look.not_checked:
        console.print(Text(f"Not checked: {what.rstrip('.')}.", "dim"), soft_wrap=True)
