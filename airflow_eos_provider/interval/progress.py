"""Progress reports of a run."""

from __future__ import annotations

from collections.abc import Callable

#: Receives one line for a person.
Report = Callable[[str], None]

#: Called with the name of each step before it is taken.
OnStep = Callable[[str], None]


def silent(line: str) -> None:
    """Drops progress lines."""
