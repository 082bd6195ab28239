"""Prints the demo's progress: a line for everything that happened, and one for what is going on now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from airflow_eos_provider.data_text import visible

#: Where there is no terminal to overwrite a line on, the present is printed when nothing else was for so long, seconds.
_PRINT_NOW_AFTER_SECONDS = 2.0

_TICK_SECONDS = 0.5


class Screen:
    """The terminal of one demo. Lines carry the seconds since its start.

    :param console: where to.
    :param load: a few words on the load, shown beside whatever goes on.
    """

    def __init__(self, console: Console, load: Callable[[], str] = str) -> None:
        self.console = console
        self.load = load
        self._started = time.monotonic()
        self._steps: list[tuple[str, float]] = []
        self._now = ""
        self._printed_at = 0.0
        self._printed_now = ""
        self._status: Status | None = Status("", console=console) if console.is_terminal else None
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="screen", daemon=True)

    def __enter__(self) -> Screen:
        if self._status is not None:
            self._status.start()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._ticker.join(timeout=5)
        if self._status is not None:
            self._status.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started

    def step(self, title: str) -> None:
        """A new chapter; its duration is in :meth:`timings`."""
        self._steps.append((title, self.elapsed))
        self._print(Rule(Text(f"{self._clock()} {title}", style="bold"), align="left"))
        self.now(title)

    def say(self, line: str, style: str = "") -> None:
        """Something that happened."""
        text = Text(f"{self._clock()} ", style="dim")
        text.append(visible(line, keep="\n"), style=style or "none")
        self._print(text)

    def now(self, what: str) -> None:
        """What goes on at this moment; it is shown, with the clock running, until the next call."""
        self._now = what

    def document(self, title: str, markdown: str) -> None:
        """A text to be read, such as a plan."""
        self._print(Panel(Markdown(markdown), title=Text(title), title_align="left"))

    def timings(self) -> list[tuple[str, float]]:
        """The steps so far, each with its seconds."""
        ends = [start for _, start in self._steps[1:]] + [self.elapsed]
        return [(title, round(end - start, 1)) for (title, start), end in zip(self._steps, ends, strict=True)]

    def _print(self, what: RenderableType) -> None:
        self._printed_at = self.elapsed
        self.console.print(what, soft_wrap=isinstance(what, Text))

    def _tick(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            load = self.load()
            line = f"{self._now}   [{load}]" if load else self._now
            if self._status is not None:
                self._status.update(Text(f"{self._clock()} {line}"))
            elif line != self._printed_now and self.elapsed - self._printed_at >= _PRINT_NOW_AFTER_SECONDS:
                self._printed_now = line
                self._print(Text(f"{self._clock()} … {line}", style="dim"))

    def _clock(self) -> str:
        seconds = int(self.elapsed)
        return f"{seconds // 60:2d}:{seconds % 60:02d}"
