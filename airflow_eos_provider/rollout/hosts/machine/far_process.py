"""Processes of a machine, read from its ``/proc`` by one command, with its own clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FarProcess:
    """One process of a machine.

    :param pid: its process id there.
    :param start: names this start of this pid on this machine: boot id and start ticks.
    :param started_at: its start, seconds since the epoch, by the clock of its machine.
    :param clock_offset: seconds to add to a moment of that machine's clock to have it by this one's.
    :param command_line: its words.
    """

    pid: int
    start: str
    started_at: float
    clock_offset: float = 0.0
    command_line: tuple[str, ...] = ()
