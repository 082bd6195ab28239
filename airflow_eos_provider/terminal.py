"""Consoles that print text as data: no markup and no terminal commands unless the text is styled by this package."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from airflow_eos_provider.data_text import visible
from airflow_eos_provider.errors import EosError

#: Width of what is printed into a file or a pipe, where no terminal says how wide it is.
PIPE_WIDTH = 160

#: What a disk that is full, or broken, says.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})


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
    stream = sys.stderr if stderr else sys.stdout  # None where the caller has closed it
    width = None if (stream and stream.isatty()) or "COLUMNS" in os.environ else PIPE_WIDTH
    return DataConsole(stderr=stderr, width=width)


def take_any_text() -> None:
    """Let standard output and standard error take every character: one that their encoding lacks is shown by its code.

    In JSON and YAML that is the character's escape, see ``output.py``.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def flushed_output() -> Iterator[None]:
    """Write out what the body printed."""
    try:
        yield
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, such as 'head'
        sys.stdout = None
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        sys.stdout = None  # Python would try again at exit
        raise EosError(f"Standard output cannot be written: {error.strerror}.") from error
