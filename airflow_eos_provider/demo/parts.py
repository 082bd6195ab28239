"""Runs the parts of the demo one after another: one that fails ends only those that build on it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import EosError


class Outcome(StrEnum):
    """What became of a part."""

    DONE = "done"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Part:
    """One part that had its turn.

    :param reason: why it failed or was not tried, in full; None where it was done.
    :param remedy: what to do about it, where that is known.
    """

    name: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str | None = None
    remedy: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Parts:
    """Runs parts in order.

    :param done: receives each part that has had its turn.
    :param folder: where the traceback of an unexpected error goes.
    """

    def __init__(self, screen: Screen, done: list[Part], folder: Path) -> None:
        self._screen = screen
        self._parts = done
        self._folder = folder

    def attempt(self, name: str, act: Callable[[], None], *, needs: Sequence[str] = ()) -> None:
        """Do a part, unless one that it needs was not done. What it raises is shown and kept; an interruption passes.

        :param needs: names of earlier parts.
        """
        done = {part.name for part in self._parts if part.outcome is Outcome.DONE}
        lacking = [need for need in needs if need not in done]
        if lacking:
            self._end(Part(name, Outcome.NOT_TRIED, reason=f"it needs what was not done: {', '.join(lacking)}"))
            return
        began = time.monotonic()
        try:
            act()
        except Exception as error:  # whatever it is, it is shown, and the other parts have their turn
            self._end(self._failed(name, error, round(time.monotonic() - began, 1)))
        else:
            self._end(Part(name, Outcome.DONE, round(time.monotonic() - began, 1)))

    def _failed(self, name: str, error: Exception, seconds: float) -> Part:
        if isinstance(error, EosError):
            return Part(name, Outcome.FAILED, seconds, error.found, error.remedy)
        trace = self._folder / "unexpected.log"
        with trace.open("a", encoding="utf-8") as file:
            file.write(f"In {name}:\n{''.join(traceback.format_exception(error))}\n")
        return Part(name, Outcome.FAILED, seconds, f"{type(error).__name__}: {error}", f"The traceback is in {trace}.")

    def _end(self, part: Part) -> None:
        self._parts.append(part)
        if part.outcome is Outcome.NOT_TRIED:
            self._screen.say(f"Not tried: {part.name}; {part.reason}.", "yellow")
        elif part.outcome is Outcome.FAILED:
            self._screen.say(f"FAILED: {part.name}. {part.reason}", "bold red")
            if part.remedy:
                self._screen.say(f"What to do: {part.remedy}", "red")
