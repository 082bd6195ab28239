"""The examples at the end of each ``--help``."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog of Typer's: one command a line. ``\\b`` keeps the lines as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
