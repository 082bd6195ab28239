"""Pictures of the site, drawn from Mermaid sequence diagrams.

A page has the text in a fenced block, which forges draw; the site has an SVG within
the page instead, in the colours of the page. Nothing is loaded and nothing runs in the reader's browser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_COLUMN, _ROW, _HEAD = 205, 38, 48
#: Around a text, so that no line runs through it; the theme's own background.
_CLEAR = 'stroke="var(--color-background-primary, white)" stroke-width="4" paint-order="stroke"'

_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
_MESSAGE = re.compile(r"(?P<sender>\w+)(?P<arrow>->>|-->>)(?P<receiver>\w+): (?P<text>.+)")
_NOTE = re.compile(r"Note over (?P<at>\w+): (?P<text>.+)")


class _Message(NamedTuple):
    sender: int
    receiver: int
    text: str
    is_dashed: bool


def mermaid(text: str) -> str:
    """An SVG of a Mermaid sequence diagram; any other diagram as its text.

    :param text: ``sequenceDiagram`` with ``participant A as name``, ``A->>B: text``, ``A-->>B: text`` for an answer or
        a refusal, ``Note over A: text``; ``loop`` and ``end`` are left out.
    :raises ValueError: another line, or a participant that is not declared.
    """
    kind, *lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if kind != "sequenceDiagram":
        return f"<pre>{escape(text)}</pre>"
    names = dict(found.groups() for line in lines if (found := _PARTICIPANT.fullmatch(line)))
    said = [
        line for line in lines if not _PARTICIPANT.fullmatch(line) and line != "end" and not line.startswith("loop ")
    ]
    messages = [_message(line, list(names)) for line in said]
    width, height = _COLUMN * len(names), _HEAD + _ROW * (len(messages) + 1)
    parts = [_participant(name, _x(number), height) for number, name in enumerate(names.values())]
    parts += [_drawn(message, _HEAD + _ROW * (row + 1)) for row, message in enumerate(messages)]
    return _svg(width, height, f"{' and '.join(names.values())}: {'; '.join(m.text for m in messages)}", parts)


def _message(line: str, participants: Sequence[str]) -> _Message:
    if found := _NOTE.fullmatch(line):
        at = participants.index(found["at"])
        return _Message(at, at, found["text"], False)
    if found := _MESSAGE.fullmatch(line):
        sender, receiver = (participants.index(found[name]) for name in ("sender", "receiver"))
        return _Message(sender, receiver, found["text"], found["arrow"] == "-->>")
    raise ValueError(f"neither a message nor a note: {line}")


def _x(number: int) -> int:
    return _COLUMN * number + _COLUMN // 2


def _participant(name: str, x: int, height: int) -> str:
    left, wide = x - _COLUMN // 2 + 8, _COLUMN - 16
    return (
        f'<line x1="{x}" y1="{_HEAD - 20}" x2="{x}" y2="{height - 6}" stroke="currentColor" opacity="0.35"/>'
        f'<rect x="{left}" y="6" width="{wide}" height="30" rx="6" fill="none" stroke="currentColor"/>'
        f'<text x="{x}" y="26" text-anchor="middle" font-weight="bold">{escape(name)}</text>'
    )


def _drawn(message: _Message, y: int) -> str:
    start, end = _x(message.sender), _x(message.receiver)
    said = escape(message.text)
    if start == end:
        return (
            f'<circle cx="{start}" cy="{y - 4}" r="4" fill="currentColor"/>'
            f'<text x="{start + 10}" y="{y}" font-style="italic" {_CLEAR}>{said}</text>'
        )
    tip = end - 7 if end > start else end + 7
    dashes = ' stroke-dasharray="5 4"' if message.is_dashed else ""
    return (
        f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="currentColor" stroke-width="1.5"{dashes}/>'
        f'<path d="M{tip},{y - 4} L{end},{y} L{tip},{y + 4} Z" fill="currentColor"/>'
        f'<text x="{(start + end) // 2}" y="{y - 6}" text-anchor="middle" {_CLEAR}>{said}</text>'
    )


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg" '
        f'style="max-width: 100%; height: auto; font: 13px sans-serif" fill="currentColor">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
