"""The commands of changes, made from their declarations: ``apply`` shows a plan, asks and carries it out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from airflow_eos_provider.changes.change import (
    MOST_LINES,
    Change,
    Plan,
    Report,
    kind_of,
    options,
    read_request,
)
from airflow_eos_provider.changes.engine import carry_out, planned
from airflow_eos_provider.cli.common import (
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    load_kafka,
    print_share_read,
    report_line,
)
from airflow_eos_provider.cli.confirm import (
    CONFIRMATION,
    PlanOption,
    YesOption,
    command_of,
    print_applied,
    show_and_ask,
    show_plan,
)
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.look import Found, look_command
from airflow_eos_provider.cli.options import COMMON, option_name, options_of, with_options
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.output import Output, is_for_scripts


def add_commands(group: typer.Typer, change: Change[Any]) -> None:
    """Add the command that carries a change out, by the last word of its name, and ``list`` if it has rows."""
    if change.rows:
        command = look_command(_list_of(change), change.request)
        group.command("list", epilog=examples(*change.list_examples))(command)
    group.command(change.name.split()[-1], epilog=examples(*change.examples))(apply_command(change))


def _list_of(change: Change[Any]) -> Callable[..., Found]:
    """What finds what a change would meet. It changes nothing."""

    def find(cluster: Path | None, **given: Any) -> Found:
        with change.session(_described(change, cluster)) as session:
            session.on_read = print_share_read
            look = change.look(session, read_request(change.request, given))

        def show(wide: bool) -> None:
            for line in look.lines(wide):
                console.print(line, soft_wrap=True)

        return Found(look.document, look.names, show)

    find.__doc__ = change.list_summary
    return find


def apply_command(change: Change[Any]) -> Callable[..., None]:
    """The command that plans a change, and carries it out once that is confirmed."""

    def run(
        *,
        cluster: Path | None,
        plan: str | None,
        yes: bool,
        output: Output | None,
        as_json: bool,
        **given: Any,
    ) -> None:
        request: Any = read_request(change.request, {name: given[name] for name in options(change.request)})
        with change.session(_described(change, cluster)) as session:
            session.on_read = print_share_read
            made = planned(change, session, request)
            report: Report | None = None
            if plan:
                made.require(plan)
            applies_any = yes and not plan and not made.needs_hash
            error: EosError | None = show_and_ask(
                partial(_show, made),
                made.question,
                command_of(_words(change, given), made.short_hash, cluster),
                confirmed=bool(made.nothing or plan or applies_any),
                for_scripts=is_for_scripts(output, as_json=as_json),
                needs_hash=made.needs_hash,
            )
            if not (made.nothing or error):
                report = carry_out(
                    change,
                    session,
                    made,
                    actor=actor(),
                    reason=given.get("reason", ""),
                    take_over=given.get("take_over", False),
                    as_found=applies_any,
                    report=report_line,
                )
                error = report.problem
        done = None if report is None else report.to_dict()
        if not print_applied(made.to_dict(), made.short_hash, done, output, as_json=as_json) and report is not None:
            for line in report.lines():
                console.print(line, soft_wrap=True)
        if error is not None:
            raise error

    taken = {**options_of(change.request), "plan": (PlanOption, None), "yes": (YesOption, False)}
    if change.takes_lease:
        taken |= {"reason": (ReasonOption, ""), "take_over": (TakeOverOption, False)}
    help = f"{change.summary}\n\n{change.details}\n\n{CONFIRMATION}"
    return with_options(run, {**taken, **COMMON}, help)


def _described(change: Change[Any], cluster: Path | None) -> ConnectCluster:
    return ConnectCluster.of_brokers(load_kafka(cluster)) if change.brokers_only else load_cluster(cluster)


def _words(change: Change[Any], given: dict[str, Any]) -> list[str]:
    """The command, with what this one was given."""
    words = ["eos", *change.name.split()]
    for name, (option, each) in options(change.request).items():
        value, kind = given[name], kind_of(change.request, name)
        if value is None or value in ([], each.default):
            continue
        flag = [] if option.argument else [option_name(name, option, kind)]
        for one in value if kind is tuple else [value]:
            words += [*flag, *([] if one is True else [str(one)])]
    return words


def _show(made: Plan, on: Console) -> None:
    lines = list(made.lines[:MOST_LINES])
    if (more := len(made.lines) - MOST_LINES) > 0:
        lines.append(f"… and {counted(more, 'more line')}; --json has all.")
    if made.nothing:
        show_plan((*lines, f"{made.nothing} Nothing to do."), on)
    else:
        unfinished = "This change was begun and not finished: applying it resumes it."
        show_plan(lines, on, made.short_hash, [unfinished] if made.is_unfinished else ())
