"""Markdown for the reference pages: docstrings in parts, and tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_ROLE = re.compile(r":\w+:`~?\.?([^`]+)`")
_FIELD = re.compile(r"^:(param|ivar|raises|returns)\s*([^:]*):\s*(.*)$")


class Docstring(NamedTuple):
    """A docstring in parts; text is Markdown.

    :param summary: its paragraphs before the first field.
    :param parameters: name -> text, of ``:param`` and ``:ivar``.
    :param raises: (error, text).
    :param returns: what comes back.
    """

    summary: str
    parameters: dict[str, str]
    raises: list[tuple[str, str]]
    returns: str

    @classmethod
    def of(cls, documented: Any) -> Docstring:
        summary: list[str] = []
        fields: list[list[str]] = []
        for line in (inspect.getdoc(documented) or "").splitlines():
            if found := _FIELD.match(line):
                fields.append(list(found.groups()))
            elif fields and line.startswith(" "):
                fields[-1][2] += " " + line.strip()
            elif fields and line.strip():
                raise ValueError(f"{documented}: text after the fields: {line}")
            elif not fields:
                summary.append(line)
        named = {name: _markdown(text) for kind, name, text in fields if kind in ("param", "ivar")}
        raises = [(name, _markdown(text)) for kind, name, text in fields if kind == "raises"]
        returns = " ".join(_markdown(text) for kind, _, text in fields if kind == "returns")
        return cls(_markdown("\n".join(summary).strip()), named, raises, returns)


def _markdown(text: str) -> str:
    text = _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def table(heads: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table whose heads have bars between them; nothing if there are no rows."""
    lines = [f"| {' | '.join(map(_cell, row))} |\n" for row in rows]
    if lines:
        yield f"\n| {heads} |\n{'|---' * (heads.count('|') + 1)}|\n"
        yield from lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
