"""Consoles that print text as data: no markup and no terminal commands unless the text is styled by this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from airflow_eos_provider.data_text import visible

#: Width of what is printed into a file or a pipe, where no terminal says how wide it is.
PIPE_WIDTH = 160


class DataConsole(Console):
    """A console on which a plain string is one line of data, in a table's cell too: no markup, no emoji, no line break.

    Styles are given by ``style=`` or by a ``Text``, several lines by :func:`lines`. Whatever is printed, a character
    that a terminal would obey is shown by its code.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        **_: Any,
    ) -> Text:
        return Text(visible(text), style=style, justify=justify, overflow=overflow)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text, keep="\n"), segment.style)


def lines(values: Iterable[str]) -> Text:
    """Several lines of data for one cell of a table."""
    return Text("\n").join(Text(visible(value)) for value in values)


def console_on(*, stderr: bool = False) -> DataConsole:
    """A console on standard output, or on standard error."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return DataConsole(stderr=stderr, width=width)
