"""``eos topics``: a group's internal topics checked, created and mended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import (
    ClusterOption,
    HashOption,
    JsonOption,
    ReasonOption,
    TakeOverOption,
    YesOption,
    actor,
    console,
    load_cluster,
    report_line,
    require_enough_digits,
    table,
    width_for,
)
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.topics_list import list_
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.topic_checks import (
    CLEANUP,
    IN_SYNC,
    Finding,
    TopicPlan,
    TopicsLook,
    findings,
    plan_of,
)
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.offsets.internal_topics.create import create_topics
from airflow_eos_provider.offsets.internal_topics.look import Given, InternalTopicsClient
from airflow_eos_provider.output import OutputOption, print_document

topics_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Internal topics of the group: list, check and create them.",
)

OwnTopicOption = Annotated[
    list[str] | None,
    typer.Option("--own-topic", help="Also this topic, which a connector is to have as its own; may be repeated."),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", min=1, help="Of offsets topics; default: as the workers' files say, else 25."),
]
ReplicasOption = Annotated[
    int | None,
    typer.Option("--replication-factor", min=1, help="Of the topics; default: as the workers' files say, else 3."),
]


topics_app.command("list", epilog=examples("eos topics list", "eos topics list -o json"))(list_)


@topics_app.command("check", epilog=examples("eos topics check", "eos topics check --cluster prod --json"))
def check(
    cluster: ClusterOption = None,
    own_topic: OwnTopicOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicasOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the three internal topics and every connector's own. Changes nothing; exit code 1 if a check does not hold.

    Whether they exist; that they are compacted alone; their partitions, replicas and settings against the workers'
    files and the brokers; and who else writes to them. Own topics in other Kafka clusters are checked there. Exit code
    6 if no worker answers, or no broker of such a cluster, so that own topics are not known; 3 if one is refused.
    """
    given = Given({}, tuple(own_topic or ()), partitions, replication_factor)
    with ConnectSession(load_cluster(cluster)) as session:
        client = InternalTopicsClient(session, given)
        look = client.look()
    found = findings(look)
    if not print_document(look.to_dict(), [one.topic for one in found], output, as_json=as_json):
        with width_for(output):
            _show(look)
            _show_findings(found)
            _show_not_checked(look)
    if found:
        raise typer.Exit(1)
    if client.unreachable:
        raise client.unreachable
    client.require_own_topics()


@topics_app.command(
    "create",
    epilog=examples(
        "eos topics create",
        "eos topics create --hash 3f1c09ab77d2",
        "eos topics create --own-topic orders-offsets --partitions 5",
    ),
)
def create(
    cluster: ClusterOption = None,
    plan_hash: HashOption = None,
    yes: YesOption = False,
    own_topic: OwnTopicOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicasOption = None,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create missing internal topics and mend settings. Without --hash or --yes: show the plan, change nothing.

    New topics get what a worker gives them. Nothing is deleted, and no data moves; what it cannot mend is listed
    with a remedy. It holds the group's lease, as a roll does. Killed and called again, it begins from what is there.
    If the own topic of a connector is not known, the exit code says so at the end, as that of the check.
    """
    require_enough_digits(plan_hash)
    given = Given({}, tuple(own_topic or ()), partitions, replication_factor)
    with ExitStack() as stack:
        session = stack.enter_context(ConnectSession(load_cluster(cluster)))
        client = InternalTopicsClient(session, given)
        look = client.look()
        plan = plan_of(look)
        apply = bool(plan.changes) and (yes or plan_hash is not None)
        if apply:
            if plan_hash is None:
                _require_hash(plan)
            plan.require(plan_hash or plan.hash)
            journal = change_journal(session.kafka, look.group_id, actor=actor(), reason=reason, report=report_line)
            create_topics(client, plan, journal, take_over=take_over)
            look = client.look()
    left = [one for one in findings(look) if apply or not (one.creates or one.mends)]
    document = {
        "hash": plan.hash,
        "nothing_to_do": not plan.changes,
        "applied": apply,
        "changes": [change.to_dict() for change in plan.changes],
        "diff": plan.diff(),
        "findings": [one.to_dict() for one in left],
        "not_checked": list(look.not_checked),
    }
    if not print_document(document, [change.wanted.name for change in plan.changes], output, as_json=as_json):
        _show_plan(plan, _again(plan, cluster, given), applied=apply)
        if left:
            console.print("What is not mended here:", style="bold")
        _show_findings(left)
        _show_not_checked(look)
    client.require_own_topics()


def _require_hash(plan: TopicPlan) -> None:
    """Another Kafka cluster's topic is changed only if a person has seen it: a connector's author names it.

    :raises RefusedError: the plan changes settings of one.
    """
    for change in plan.changes:
        if change.wanted.addresses and not change.creates:
            raise RefusedError(
                f"The plan changes settings of {change.wanted}, which a connector names: --yes is not enough for that.",
                remedy=f"See that it is an offsets topic of this connector, then give --hash {plan.short_hash}.",
            )


def _again(plan: TopicPlan, cluster: Path | None, given: Given) -> str:
    """The command that carries a plan out, with what this one was given."""
    options: dict[str, object] = {
        "--cluster": cluster,
        "--partitions": given.partitions,
        "--replication-factor": given.replicas,
    }
    words = [word for name in given.own for word in ("--own-topic", name)]
    words += [word for option, value in options.items() if value is not None for word in (option, str(value))]
    return shlex.join(["eos", "topics", "create", "--hash", plan.short_hash, *words])


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


def _show_plan(plan: TopicPlan, command: str, *, applied: bool) -> None:
    for line in plan.diff():
        console.print(line, style={"+": "green", "-": "red"}.get(line[0]), soft_wrap=True)
    if not plan.changes:
        console.print("Nothing to do.")
    elif applied:
        console.print("Done.")
    else:
        console.print("Nothing is changed yet.")
        console.print(f"To do it:  {command}", style="bold", soft_wrap=True)


def _show_findings(found: Iterable[Finding]) -> None:
    for one in found:
        console.print(Text(one.found, "yellow"), soft_wrap=True)
        console.print(Text(f"  Expected: {one.expected}"), soft_wrap=True)
        console.print(Text(f"  What to do: {one.remedy}"), soft_wrap=True)


def _show_not_checked(look: TopicsLook) -> None:
    for what in look.not_checked:
        console.print(Text(f"Not checked: {what.rstrip('.')}.", "dim"), soft_wrap=True)
