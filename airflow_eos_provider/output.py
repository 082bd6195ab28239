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
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="json, yaml, wide (every column) or name (names only, one a line).",
    ),
]

_console = console_on()

#: ``json.dumps`` leaves these as they are. A terminal may obey them (C1 controls, marks of direction, separators), or
#: no encoding has them (half a surrogate pair).
_RAW_IN_JSON = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


def is_for_scripts(output: Output | None, *, as_json: bool) -> bool:
    """Whether :func:`print_document` prints the document, and no table is wanted."""
    return as_json or output not in (None, Output.WIDE)


def print_document(document: Any, names: Iterable[str], output: Output | None, *, as_json: bool = False) -> bool:
    """Print what was found as a script wants it.

    :param names: of what was found, for ``-o name``.
    :param as_json: ``--json``, the same as ``-o json``.
    :returns: False if a table is wanted, and nothing was printed.
    """
    if as_json or output is Output.JSON:
        print_json(document)
    elif output is Output.YAML:
        plain = json.loads(json.dumps(document))  # what JSON has a form for, such as an enum's member, YAML may not
        _print(yaml.safe_dump(plain, sort_keys=False, width=WIDE))
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
    """
    if as_json or output is Output.JSON:
        before = "[\n"
        for one in found:
            _print(f"{before}{_json_text(document(one))}")
            before = ",\n"
        _print("[]\n" if before == "[\n" else "\n]\n")
    elif output is Output.YAML:
        empty = True
        for one in found:
            print_document([document(one)], (), output)
            empty = False
        if empty:
            print_document([], (), output)
    else:
        return print_document(None, map(name, found), output)
    return True


def print_json(document: Any) -> None:
    """Print a document as JSON without a character that a terminal would obey."""
    _print(f"{_json_text(document, indent=2)}\n")
    if sys.stdout:
        sys.stdout.flush()  # a command that watches prints one after the other


def _print(text: str) -> None:
    """Not by ``typer.echo``, which flushes each line, and gives a stream of ASCII another encoding."""
    if sys.stdout:  # None where the caller has closed it
        sys.stdout.write(text)


def _json_text(document: Any, indent: int | None = None) -> str:
    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    text = json.dumps(document, indent=indent, ensure_ascii=not encoding.lower().startswith("utf"))
    return _RAW_IN_JSON.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)
