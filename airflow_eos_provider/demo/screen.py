"""Prints the demo's progress: one line when a stage begins."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from airflow_eos_provider.data_text import visible


class Screen:
    """The terminal of one demo. A terminal also shows that the stage is running."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running = console.status("")
        self._started = time.monotonic()
        self._stages: list[tuple[str, float]] = []

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
        self._running.update(Text(visible(title)))
        self._console.print(Text(f"{elapsed:4.0f} s  ", style="dim") + Text(visible(title), style="bold"))

    def say(self, line: str) -> None:
        """A remark below the stage's line."""
        self._console.print(Padding(Text(visible(line, keep="\n"), style="yellow"), (0, 0, 0, 8), expand=False))

    def timings(self) -> list[tuple[str, float]]:
        """The stages so far, each with its seconds."""
        ends = [start for _, start in self._stages[1:]] + [time.monotonic() - self._started]
        return [(title, round(end - start, 1)) for (title, start), end in zip(self._stages, ends, strict=True)]
