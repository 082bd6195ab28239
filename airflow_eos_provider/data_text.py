"""Shows values from elsewhere as plain text: on one line, without markup and without a terminal's commands.

A reason, a connector's name, a worker's id or a trace may contain line breaks, Markdown, escape sequences or marks that
turn the direction of writing. What cannot be printed is shown by its code; in Markdown the value is in a code span.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: A value is cut after this many characters unless its place has room for more.
VALUE_CHARACTERS = 200

#: A line of a log or of an error, which may quote several values.
LINE_CHARACTERS = 4_000

_SHORT_CODES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keep: str = "") -> str:
    """The text with everything that is not printed shown by its code: control characters and escape sequences, line
    breaks, marks of direction and of no width, and spaces other than the common one.
    """
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark in keep else _code(mark) for mark in text)


def one_line(value: object, limit: int = VALUE_CHARACTERS) -> str:
    """A value as one line of printable characters."""
    text = str(value)
    shown = visible(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_few(names: Iterable[str], limit: int = 3) -> str:
    """``a, b, c and 4 more``."""
    found = list(names)
    return ", ".join(found[:limit]) + (f" and {len(found) - limit:,} more" if len(found) > limit else "")


def ranges(numbers: Sequence[int]) -> str:
    """``0…3,7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}…{last}" for first, last in found)


def duration(seconds: float) -> str:
    """A time in the unit that it is said in: 90 s, 3.5 h."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def sentence(phrase: str) -> str:
    """``see its log`` -> ``See its log.``"""
    return f"{phrase[:1].upper()}{phrase[1:]}."


def code_span(value: object, limit: int = VALUE_CHARACTERS) -> str:
    """A value as a Markdown code span, in which nothing else is Markdown; it also fits into a cell of a table.

    Its fence is longer than any row of backticks in it (CommonMark 6.1). A bar is shown by its code, since it would end
    a table's cell even here (GFM 4.10).
    """
    text = one_line(value, limit).replace("|", "\\x7c")
    if not text.strip():
        return "`(empty)`"
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    # One space at each end belongs to the fence: without it a backtick at an end would lengthen the fence.
    padding = " " if longest or text[0] == " " else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _code(mark: str) -> str:
    number = ord(mark)
    if mark in _SHORT_CODES:
        return _SHORT_CODES[mark]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
