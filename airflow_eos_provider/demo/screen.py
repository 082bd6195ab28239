"""Prints the demo's progress: one line when a stage begins, and one for each result."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from airflow_eos_provider.data_text import visible


class Screen:
    """The terminal of one demo. A terminal also shows the running stage with its clock.

    :param console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._stages: list[tuple[str, float]] = []
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self._running = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._running.add_task("", total=None)

    def __enter__(self) -> Screen:
        self._running.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.stop()

    def stage(self, title: str) -> None:
        """A new stage begins; the line has the seconds since the start."""
        elapsed = time.monotonic() - self._started
        self._stages.append((title, elapsed))
        self._running.update(self._task, description=visible(title))
        self._print(Text(f"{elapsed:4.0f} s  ", style="dim") + Text(visible(title), style="bold"))

    def say(self, line: str, style: str = "none") -> None:
        """A result of the stage."""
        self._print(Padding(Text(visible(line, keep="\n"), style=style), (0, 0, 0, 8), expand=False))

    def timings(self) -> list[tuple[str, float]]:
        """The stages so far, each with its seconds."""
        ends = [start for _, start in self._stages[1:]] + [time.monotonic() - self._started]
        return [(title, round(end - start, 1)) for (title, start), end in zip(self._stages, ends, strict=True)]

    def _print(self, what: Text | Padding) -> None:
        self._console.print(what)
