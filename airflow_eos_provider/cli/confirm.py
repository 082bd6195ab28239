"""How a person or a script confirms a plan: the same for every command that changes something."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from airflow_eos_provider.cli.common import console, error_console, require_enough_digits
from airflow_eos_provider.data_text import visible
from airflow_eos_provider.errors import NothingDoneError
from airflow_eos_provider.output import Output, print_document
from airflow_eos_provider.plan_hash import MIN_HASH_LENGTH

F = TypeVar("F", bound=Callable[..., Any])

PlanOption = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="HASH",
        callback=require_enough_digits,
        help=f"Apply the plan only if it has this hash ({MIN_HASH_LENGTH} or more digits).",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Apply the plan without asking.")]

#: Part of the help of each command that asks.
CONFIRMATION = (
    "Shows the plan and its hash, then asks. --yes applies what it shows; --plan HASH applies only that plan. Without "
    "a terminal and without either it changes nothing and ends with exit code 3."
)


def asks(command: F) -> F:
    """Say in the command's help how it asks."""
    command.__doc__ = f"{inspect.getdoc(command)}\n\n{CONFIRMATION}"
    return command


def command_of(words: Iterable[str], plan_hash: str, cluster: Path | None) -> str:
    """The command that applies this plan, and no other."""
    return shlex.join([*words, "--plan", plan_hash, *(["--cluster", str(cluster)] if cluster is not None else [])])


def show_plan(lines: Iterable[str], on: Console, short_hash: str = "", notes: Iterable[str] = ()) -> None:
    """Print lines of a plan, notes on it, and its hash if it is given."""
    for line in lines:
        on.print(line, style={"+": "green", "-": "red"}.get(line[:1]), soft_wrap=True)
    for line in notes:
        on.print(line, style="yellow", soft_wrap=True)
    if short_hash:
        on.print(f"Plan {short_hash}", style="bold")


def show_and_ask(
    show: Callable[[Console], object],
    question: str,
    command: str,
    *,
    confirmed: bool,
    for_scripts: bool,
    needs_hash: str = "",
) -> NothingDoneError | None:
    """Show a plan and, on a terminal, ask whether to apply it.

    :param show: prints the plan; on standard error and only before a question, if standard output is for a script.
    :param command: applies this plan.
    :param confirmed: whether an option confirms it, or there is nothing to do; then nothing is asked.
    :param needs_hash: why ``--yes`` is not enough; empty if it is.
    :returns: why the plan is not applied; None if it is.
    """
    if not for_scripts:
        show(console)
    if confirmed:
        return None
    if not sys.stdin.isatty():
        how = f"--plan HASH: {needs_hash}" if needs_hash else "--yes or --plan HASH."
        return NothingDoneError(f"Nothing changed. Pass {how}", remedy=f"Apply this plan:  {command}")
    if for_scripts:
        show(error_console)
    if typer.confirm(visible(question), err=True):
        return None
    return NothingDoneError("Nothing changed: you did not confirm the plan.")


def print_applied(
    plan: Mapping[str, Any],
    short_hash: str,
    report: Mapping[str, Any] | None,
    output: Output | None,
    *,
    as_json: bool,
    **more: Any,
) -> bool:
    """Print a plan and its report as a script wants them."""
    document = {"plan": plan, "applied": report is not None, "report": report, **more}
    return print_document(document, [short_hash], output, as_json=as_json)
