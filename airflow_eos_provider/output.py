"""What a command prints for scripts: JSON, YAML, or names alone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
import yaml

from airflow_eos_provider.terminal import console_on

T = TypeVar("T")

#: The width for ``-o wide``, in which no table is folded, characters.
WIDE = 10_000


class Output(StrEnum):
    """In which form a command prints what it found."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"


OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="As json or yaml; wide: with every column; name: the names alone, one a line."),
]

_console = console_on()

#: In JSON these stand raw by default, and a terminal may obey them: C1 controls, marks of direction, separators.
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def print_document(document: Any, names: Iterable[str], output: Output | None, *, as_json: bool) -> bool:
    """Print what was found as a script wants it.

    :param names: of what was found, for ``-o name``.
    :param as_json: ``--json``, the same as ``-o json``.
    :returns: False if a table is wanted, and nothing was printed.
    """
    if as_json or output is Output.JSON:
        print_json(document)
    elif output is Output.YAML:
        plain = json.loads(json.dumps(document))  # what JSON has a form for, such as an enum's member, YAML may not
        typer.echo(yaml.safe_dump(plain, sort_keys=False, width=WIDE), nl=False)
    elif output is Output.NAME:
        for name in names:
            _console.print(name, soft_wrap=True)
    else:
        return False
    return True


def print_documents(
    found: Iterable[T],
    document: Callable[[T], Any],
    name: Callable[[T], str],
    output: Output | None,
    *,
    as_json: bool,
) -> bool:
    """Print a list of what was found as :func:`print_document` does, but one by one: memory need not hold them all.

    In JSON each has a line of its own.

    :param document: of one of them.
    :param name: of one of them, for ``-o name``.
    """
    if as_json or output is Output.JSON:
        before = "[\n"
        for one in found:
            sys.stdout.write(f"{before}{_json_text(document(one))}")  # typer.echo would flush each
            before = ",\n"
        typer.echo("[]" if before == "[\n" else "\n]")
    elif output is Output.YAML:
        empty = True
        for one in found:
            print_document([document(one)], (), output, as_json=False)
            empty = False
        if empty:
            print_document([], (), output, as_json=False)
    else:
        return print_document(None, map(name, found), output, as_json=False)
    return True


def print_json(document: Any) -> None:
    """Print a document as JSON without a character that a terminal would obey."""
    typer.echo(_json_text(document, indent=2))


def _json_text(document: Any, indent: int | None = None) -> str:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return _RAW_IN_JSON.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)
