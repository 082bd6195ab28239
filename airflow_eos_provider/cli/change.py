"""The commands of changes, made from their declarations: ``apply`` shows a plan, asks and carries it out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.console import Console

from airflow_eos_provider.acls.tool_rules import VERBS
from airflow_eos_provider.changes.change import (
    MOST_LINES,
    Change,
    Option,
    Plan,
    Report,
    kind_of,
    options,
    read_request,
)
from airflow_eos_provider.changes.engine import carry_out, planned
from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    load_kafka,
    print_share_read,
    report_line,
)
from airflow_eos_provider.cli.completion import Candidate, complete_connector
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
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.output import Output, OutputOption, is_for_scripts, print_document


def _complete_run(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    from airflow_eos_provider.cli.exactly_once.intervals import complete_run

    return complete_run(ctx, incomplete)


_COMPLETIONS: dict[str, Callable[..., Any]] = {
    "connector": complete_connector,
    "run": _complete_run,
    "verb": lambda: list(VERBS),
}


def add_apply(app: typer.Typer, change: Change[Any]) -> None:
    """Add the command that carries a change out; its name is the last word of the change's."""
    app.command(change.name.split()[-1], epilog=examples(*change.examples))(apply_command(change))


def add_list(app: typer.Typer, change: Change[Any], summary: str, *lines: str) -> None:
    """Add ``list``, which shows what a change would meet.

    :param summary: its help.
    :param lines: its examples.
    """
    app.command("list", help=summary, epilog=examples(*lines))(list_command(change))


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

    lease = {"reason": (ReasonOption, ""), "take_over": (TakeOverOption, False)} if change.takes_lease else {}
    return with_options(
        run,
        change.request,
        f"{change.summary}\n\n{change.details}\n\n{CONFIRMATION}",
        {"plan": (PlanOption, None), "yes": (YesOption, False), **lease},
    )


def list_command(change: Change[Any]) -> Callable[..., None]:
    """The command that shows what a change would meet. It changes nothing."""

    def run(*, cluster: Path | None, output: Output | None, as_json: bool, **given: Any) -> None:
        with change.session(_described(change, cluster)) as session:
            session.on_read = print_share_read
            look = change.look(session, read_request(change.request, given))
        if not print_document(look.document, look.names, output, as_json=as_json):
            for line in look.lines(output is Output.WIDE):
                console.print(line, soft_wrap=True)

    return with_options(run, change.request, for_look=True)


def _described(change: Change[Any], cluster: Path | None) -> ConnectCluster:
    return ConnectCluster.of_brokers(load_kafka(cluster)) if change.brokers_only else load_cluster(cluster)


def with_options(
    run: Callable[..., None],
    request: type,
    help: str = "",
    more: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    *,
    for_look: bool = False,
) -> Callable[..., None]:
    """A command whose options are the fields of a request; the function takes each by its name.

    :param help: of the command; empty: the function's docstring.
    :param more: further options: their annotation and default.
    :param for_look: only the fields that a look takes.
    """
    common = {"cluster": (ClusterOption, None), "output": (OutputOption, None), "as_json": (JsonOption, False)}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in {**_of_request(request, for_look=for_look), **more, **common}.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = help or run.__doc__
    return run


def _of_request(request: type, *, for_look: bool) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for name, (option, each) in options(request).items():
        if for_look and not option.looks:
            continue
        kind = kind_of(request, name)
        is_required = each.default is MISSING
        annotation: Any = list[str] if kind is tuple else Path if option.completes == "file" else kind
        if not is_required and kind is not bool and each.default in ((), "", None):
            annotation = annotation | None
        default = inspect.Parameter.empty if is_required else each.default or (False if kind is bool else None)
        found[name] = (Annotated[annotation, _info(name, option, kind)], default)
    return found


def _info(name: str, option: Option, kind: type) -> Any:
    more: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None, "min": option.least}
    more["envvar"] = option.envvar or None
    if option.completes in _COMPLETIONS:
        more["autocompletion"] = _COMPLETIONS[option.completes]
    if option.argument:
        more["metavar"] = more["metavar"] or (name.removesuffix("s") if kind is tuple else name).upper()
        return typer.Argument(**more)
    if kind is str:
        more["metavar"] = more["metavar"] or "TEXT"
    return typer.Option(_option_name(name, option, kind), **more)


def _option_name(name: str, option: Option, kind: type) -> str:
    return option.flag or f"--{(name.removesuffix('s') if kind is tuple else name).replace('_', '-')}"


def _words(change: Change[Any], given: dict[str, Any]) -> list[str]:
    """The command, with what this one was given."""
    words = ["eos", *change.name.split()]
    for name, (option, each) in options(change.request).items():
        value, kind = given[name], kind_of(change.request, name)
        if value is None or value in ([], each.default):
            continue
        flag = [] if option.argument else [_option_name(name, option, kind)]
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
