"""``eos fence``: fencing rounds, seen and carried out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from airflow_eos_provider.cli.common import (
    ClusterOption,
    ConfigTopicOption,
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
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.offsets.fencing.documents import fence_document
from airflow_eos_provider.offsets.fencing.look import ConnectorLook, FenceId, FenceLook
from airflow_eos_provider.offsets.fencing.plan import Decision, FencePlan
from airflow_eos_provider.offsets.fencing.round import WAIT_SECONDS, Fencer, RoundReport, combined_problem
from airflow_eos_provider.output import Output, OutputOption, print_document, print_json

#: Of a connector with more ids only those are shown that have a transaction open, unless -o wide.
_SHOWN_IDS = 10

#: A worker restarts a task within its own time for a stop, 5 s by default, and answers then.
_ANSWER_SECONDS = 30.0


def fence(
    connectors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONNECTOR]…",
            autocompletion=complete_connector,
            help="Source connectors; default: all. For those that are named, transactions that running tasks hold open "
            "are ended too.",
        ),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only connectors whose fencing round is due, or has failed.")
    ] = False,
    plan_hash: HashOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
    config_topic: ConfigTopicOption = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=1.0, metavar="SECONDS", help="How long Connect has for its own round, and for its tasks."
        ),
    ] = WAIT_SECONDS,
    reason: ReasonOption = "",
    take_over: TakeOverOption = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the fencing of source connectors, and what a round would do; with --hash or --yes, do it.

    Transactional ids are fenced all at once, Connect is asked to restart the tasks, and its own task count record is
    awaited. Killed and called again, it goes on where it was.
    """
    require_enough_digits(plan_hash)
    described = load_cluster(cluster)
    names = tuple(connectors or ())
    with ConnectSession(described, answer_seconds=_ANSWER_SECONDS) as session:
        topic = read_worker_files(described).common(CONFIGS, config_topic)
        fencer = Fencer(session, topic, report=report_line, wait_seconds=wait)
        plan = fencer.unfinished()
        if plan is None or not (yes or (plan_hash and plan.hash.startswith(plan_hash))):
            seen, decision = fencer.look(names, pending_only=pending)
            if not plan_hash and (decision.plan.nothing_to_do or not yes):
                command = apply_command(names, cluster, decision.plan, pending=pending)
                _print(seen, decision, command, plan, output, as_json=as_json)
                return
            plan = decision.plan
            plan.require_unmoved(plan_hash or "")
        journal = change_journal(session.kafka, described.group_id, actor=actor(), reason=reason, report=report_line)
        reports = fencer.apply(plan, journal, take_over=take_over, as_found=not plan_hash)
    show_reports(reports, as_json=as_json or output is Output.JSON)
    if problem := combined_problem(reports):
        raise problem


def _print(
    seen: FenceLook,
    decision: Decision,
    command: str,
    unfinished: FencePlan | None,
    output: Output | None,
    *,
    as_json: bool,
) -> None:
    document = fence_document(seen, decision, unfinished)
    names = [round_.connector for round_ in decision.plan.rounds]
    if print_document(document, names, output, as_json=as_json):
        return
    with width_for(output):
        show(seen, decision, command, wide=output is Output.WIDE)
    if unfinished:
        console.print(
            f"A fencing of {', '.join(round_.connector for round_ in unfinished.rounds)} was begun and not finished. "
            f"To go on with it:  eos fence --hash {unfinished.short_hash}",
            style="yellow",
            soft_wrap=True,
        )


def apply_command(names: Sequence[str], cluster: Path | None, plan: FencePlan, *, pending: bool) -> str:
    """The command that carries a plan out, with what this one was given."""
    words = ["eos", "fence", *names, *(["--pending"] if pending else []), "--hash", plan.short_hash]
    return shlex.join([*words, *(["--cluster", str(cluster)] if cluster is not None else [])])


def show(seen: FenceLook, decision: Decision, command: str, *, wide: bool) -> None:
    """Print a look and its plan.

    :param command: that carries it out.
    :param wide: all ids of every connector.
    """
    if decision.unused:
        console.print(f"{decision.unused} Nothing to do.", soft_wrap=True)
        return
    connectors = {each.name: each for each in seen.connectors}
    for round_ in decision.rounds:
        first, *rest = round_.lines()
        console.print(first, style="" if round_.nothing_to_do else "yellow", soft_wrap=True)
        for line in rest:
            console.print(line, soft_wrap=True)
        _show_ids(connectors[round_.connector], seen.at, wide=wide)
    if decision.plan.nothing_to_do:
        console.print("Nothing to do.")
        return
    console.print("Nothing is changed yet.")
    console.print(f"To do it:  {command}", style="bold", soft_wrap=True)


def _show_ids(each: ConnectorLook, at: float, *, wide: bool) -> None:
    ids = [one for one in each.ids if wide or len(each.ids) <= _SHOWN_IDS or one.held]
    if not ids:
        return
    shown = table()
    for column in ("  transactional id", "state", "producer", "transaction open"):
        shown.add_column(column, overflow="fold", no_wrap=column.startswith(" "))
    for one in ids:
        known = one.known
        producer = f"{known.producer_id}/{known.producer_epoch}" if known else "-"
        state = str(known.state) if known else "not known to any broker"
        shown.add_row(f"  {one.transactional_id}", state, producer, Text(_open(one, at), "yellow" if one.held else ""))
    console.print(shown)


def _open(one: FenceId, at: float) -> str:
    known = one.known
    if known is None or known.started_at_ms is None:
        return "no"
    partitions = ", ".join(f"{topic}-{partition}" for topic, partition in known.partitions)
    since = f"{max(0.0, at - known.started_at_ms / 1000):.0f} of {known.timeout_ms / 1000:.0f} s"
    return f"{since}, in {partitions or 'no partition yet'}"


def show_reports(reports: Sequence[RoundReport], *, as_json: bool) -> None:
    """Print what was done: every id's producer before, the one that fenced it, and the one it has now."""
    if as_json:
        print_json([report.to_dict() for report in reports])
        return
    for report in reports:
        done = "done" if report.problem is None else "not done"
        record = "none" if report.record is None else str(report.record)
        console.print(
            f"{report.connector}: {done}; {len(report.ids):,} ids fenced, {len(report.restarted):,} tasks restarted, "
            f"task count record {record}",
            soft_wrap=True,
        )
        for one in report.ids:
            console.print(f"  {one}", soft_wrap=True)
