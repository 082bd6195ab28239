"""Commands that change nothing print what they find, as text or for scripts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import typer

from airflow_eos_provider.cli.common import width_for
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.options import COMMON, options_of, own_options, with_options
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.output import Output, print_document


@dataclass(frozen=True, slots=True)
class Found:
    """What a command has found.

    :param document: as JSON. Scripts rely on its names.
    :param names: of what was found, for ``-o name``.
    :param show: prints it as text; called with True for ``-o wide``.
    :param exit_code: what the command ends with.
    :param error: raised after what was found is printed.
    """

    document: Any
    names: Iterable[str]
    show: Callable[[bool], object]
    exit_code: int = 0
    error: EosError | None = None


def look_command(find: Callable[..., Found], request: type | None = None) -> Callable[..., None]:
    """A command that prints what a function finds."""
    own = own_options(find)

    def run(*, output: Output | None, as_json: bool, **given: Any) -> None:
        output = Output.JSON if as_json else output
        found = find(**{**given, **({"output": output} if "output" in own else {})})
        if not print_document(found.document, found.names, output):
            with width_for(output):
                found.show(output is Output.WIDE)
        if found.error:
            raise found.error
        if found.exit_code:
            raise typer.Exit(found.exit_code)

    taken = {name: each for name, each in own.items() if name not in COMMON}
    taken |= options_of(request, for_look=True) if request else {}
    common = {name: each for name, each in COMMON.items() if name != "cluster" or name in own}
    return with_options(run, {**taken, **common}, inspect.getdoc(find) or "")


def add_look(app: typer.Typer, name: str, *lines: str, request: type | None = None) -> Callable[[Any], Any]:
    """Add the command that prints what the decorated function finds."""

    def add(find: Callable[..., Found]) -> Callable[..., Found]:
        app.command(name, epilog=examples(*lines))(look_command(find, request))
        return find

    return add
